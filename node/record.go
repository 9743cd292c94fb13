package node

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// podRecord is what the controller remembers of one pod name: what the provider
// holds under it, and the newest word on its status. Only the sync worker that
// has the key calls the provider about it; notifications come in meanwhile.
type podRecord struct {
	mu sync.Mutex

	// pod is the latest known form of the pod that this record is about, the
	// API's where the API has it.
	pod *corev1.Pod
	state
}

// state is the part of a record that is about one UID.
type state struct {
	provider  knowledge
	theirs    bool        // pod is the provider's: the API has it no more
	next      *verdict    // on the pod that comes after theirs; nil: none yet
	creating  bool        // CreatePod is running
	ran       bool        // the provider held it at some time
	cancelled bool        // its creation was: the provider may hold it all the same
	handed    *corev1.Pod // API object that the provider was last given
	decided   generation  // form of the pod that the controller last reported on itself
	stale     bool        // found after a restart, with an older form of the pod
	expired   bool        // its deadline is over: it is to be ended
	// activeSince is when its deadline began to count, where the API does not say.
	activeSince time.Time
	asked       request
	askedAt     time.Time
	inspected   time.Time
	missing     int
	missedAt    time.Time // when it was first missed, since it was last found
	removed     bool
	shownAs     types.UID // by the provider: the UID of its own that it has for the pod
	doubtful    bool      // a list of the API lacks it, which may be wrong
	ending      ending

	// tried is the last action that was taken, retryAt the times before which an
	// action is not to be tried again, as its error has asked.
	tried   verb
	retryAt map[verb]time.Time

	// said is the provider's newest word on the status, report that or the
	// controller's own: what the API should say. They are replaced, never
	// changed.
	said   *corev1.PodStatus
	report *corev1.PodStatus
	// unsent is since when there is a report that the API has not heard.
	unsent time.Time
	// heard is when (on the controller's count of observations) the provider
	// last said something about the pod: older answers do not count.
	heard uint64
	// differed is what heard was when a list said something else; nil if the last
	// one did not.
	differed *uint64

	// unlisted is how many lists in a row did not show a pod that was held.
	unlisted int

	// call is the one under way that takes the pod on, or a change of it; else nil.
	call *interruptible

	// early is what the provider notified before the record knew its pod.
	early *corev1.Pod

	// What the status worker last sent, what the API made of it, and when.
	sent   *corev1.PodStatus
	stored *corev1.Pod
	sentAt time.Time
	// others are the conditions that others have set on the pod.
	others otherConditions

	// removing is set while the removal of the pod waits for its last status. refused
	// is a report that the API will not take, forbidden since when it forbids it.
	removing  bool
	refused   *corev1.PodStatus
	forbidden time.Time
	// insisted is the report that was sent again, as the API had something else.
	insisted *corev1.PodStatus

	// cause is the span in which the provider was last asked for something, until
	// the API has heard what came of it; nil if nobody records spans.
	cause trace.Span

	// waitsFor are the objects without which the pod cannot be created.
	waitsFor map[podenv.Object]struct{}
	// told are the warnings since the last success, so that a retry that fails
	// the same way says nothing new.
	told map[string]struct{}
}

// verdict is how a pod has ended that never ran.
type verdict struct {
	uid    types.UID
	status *corev1.PodStatus
}

// verdict returns that on the record's pod, or nil. r.mu is held.
func (r *podRecord) verdict() *verdict {
	if r.report == nil || !isTerminal(r.report.Phase) {
		return nil
	}
	return &verdict{r.uid(), r.report}
}

func (r *podRecord) uid() types.UID {
	if r.pod == nil {
		return ""
	}
	return r.pod.UID
}

// subject is the pod that the record is about, or else that of the API, or else one
// that has only the name.
func (r *podRecord) subject(namespace, name string, pod *corev1.Pod) *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.pod != nil:
		return r.pod
	case pod != nil:
		return pod
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// adopt makes the record one about another pod, of which nothing is known.
// r.mu is held, or the record not shared yet.
func (r *podRecord) adopt(pod *corev1.Pod) {
	r.pod = pod
	r.state = state{provider: unknown, early: r.early}
}

// tell makes status what the API should say. r.mu is held.
func (r *podRecord) tell(status *corev1.PodStatus) {
	r.report = status
	if r.unsent.IsZero() {
		r.unsent = time.Now()
	}
}

// store takes what the API made of the last patch. r.mu is held.
func (r *podRecord) store(pod *corev1.Pod) {
	r.stored = pod
	if !older(pod, r.pod) {
		r.renew(pod)
	}
}

// renew takes a newer form of the record's pod, also as the one that the provider
// was handed if that is the same to it: of a pod that rests one form is kept in
// memory, that of the cache. r.mu is held.
func (r *podRecord) renew(pod *corev1.Pod) {
	r.pod = pod
	if r.handed != nil && r.handed.UID == pod.UID && !specChanged(r.handed, pod) {
		r.handed = pod
	}
}

// missed records that the provider does not know the record's pod. r.mu is held.
func (r *podRecord) missed(now time.Time) {
	r.provider = absent
	r.missing++
	if r.missedAt.IsZero() {
		r.missedAt = now
	}
}

// found records that the provider holds the record's pod. r.mu is held.
func (r *podRecord) found() {
	r.missing, r.missedAt = 0, time.Time{}
}

// stopped tells whether the provider has reported that the pod runs no more.
// Before its end was asked for only the phase tells, since containers that have
// ended may be started again.
func (r *podRecord) stopped() bool {
	if r.said == nil {
		return false
	}
	return isTerminal(r.said.Phase) || r.asked != requestNone && allTerminated(r.said)
}

func isTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func allTerminated(status *corev1.PodStatus) bool {
	if len(status.ContainerStatuses) == 0 {
		return false
	}
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range statuses {
			if statuses[i].State.Terminated == nil {
				return false
			}
		}
	}
	return true
}

// records is the table of all records by key (namespace/name).
type records struct {
	mu    sync.RWMutex
	byKey map[string]*podRecord
}

func (t *records) get(key string) *podRecord {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[key]
}

// getOrAdd returns the record of key, with one that knows nothing where there
// was none.
func (t *records) getOrAdd(key string) *podRecord {
	if r := t.get(key); r != nil {
		return r
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.byKey[key]; r != nil {
		return r
	}
	if t.byKey == nil {
		t.byKey = map[string]*podRecord{}
	}
	r := &podRecord{state: state{provider: unknown}}
	t.byKey[key] = r
	return r
}

func (t *records) drop(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, key)
}

func (t *records) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byKey)
}

// each calls f for every record of the moment, without holding the table.
func (t *records) each(f func(key string, r *podRecord)) {
	t.mu.RLock()
	keys := make([]string, 0, len(t.byKey))
	all := make([]*podRecord, 0, len(t.byKey))
	for key, r := range t.byKey {
		keys = append(keys, key)
		all = append(all, r)
	}
	t.mu.RUnlock()
	for i, r := range all {
		f(keys[i], r)
	}
}
