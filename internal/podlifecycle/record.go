package podlifecycle

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// podRecord is what the controller knows of one pod: what the API wants of it, what
// the provider holds, and which status the API should have. Only the sync worker that
// has the record's key calls the provider about the pod; notifications come in meanwhile.
type podRecord struct {
	// id is the pod's UID, or what the provider's pod is called instead if it has none.
	// It is the record's key, and never changes.
	id   types.UID
	name types.NamespacedName

	// seenAt is when the record was made.
	seenAt time.Time

	mu sync.Mutex

	// pod is the newest known form of the pod: the API's, or of an orphan the
	// provider's.
	pod *corev1.Pod

	// What is set or not stands together, so that a record takes less memory.

	// orphan is set if the provider holds the pod and the API does not have it.
	orphan   bool
	creating bool // CreatePod is running
	stale    bool // found after a restart, with an older form of the pod
	expired  bool // its deadline is over: it is to be ended
	// gone is set once the API has reported that it does not have the pod any more: by its
	// watch, or when it was asked. That the cache lacks the pod says only that a list did.
	gone bool
	// removing is set while the removal of the pod waits for its last status.
	removing bool

	progress
	// lastApplied is the API object that the provider was last given.
	lastApplied *corev1.Pod
	decided     int64 // generation that the controller last decided on itself
	// activeSince is when its deadline began to count, where the API does not say.
	activeSince time.Time
	ending      ending

	// tried is the last action that was taken, retryAt the times before which an
	// action is not to be tried again, as its error has asked.
	tried   verb
	retryAt map[verb]time.Time

	// providerStatus is the newest status that the provider has reported, desiredStatus
	// that or the controller's own: what the API should have. They are replaced, never
	// changed.
	providerStatus *corev1.PodStatus
	desiredStatus  *corev1.PodStatus
	// unsentSince is since when the API lacks desiredStatus.
	unsentSince time.Time
	// observation is when, on the controller's count of observations, the provider last
	// reported a status: answers to earlier questions do not count.
	observation uint64
	// endSince is when, on that count, the provider was first asked for the pod's end: answers to earlier questions count as
	// observed no later than that.
	endSince uint64
	// differed is what observation was when a list had another status; nil if the last
	// one did not.
	differed *uint64

	// unlisted is how many lists in a row did not show a pod that was held.
	unlisted int

	// call is the one under way that creates or updates the pod; else nil.
	call *interruptible

	// What the status worker last sent, what the API made of it, and when.
	sent   *corev1.PodStatus
	stored *corev1.Pod
	sentAt time.Time
	// others are the conditions that others have set on the pod.
	others otherConditions

	// refused is a status that the API will not take, forbidden since when it forbids it.
	refused   *corev1.PodStatus
	forbidden time.Time
	// insisted is the status that was sent again, as the API had something else.
	insisted *corev1.PodStatus
	// dropped is the observed generation that was last sent, if the API does not store those.
	dropped int64

	// cause is the span in which the provider was last asked for something, until
	// the API has the outcome; nil if nobody records spans.
	cause trace.Span

	createdAt time.Time // when CreatePod returned without an error; zero after a restart
	// failure is the last error about the pod that has not been followed by a success; else nil.
	failure *failure

	// waitsFor are the objects without which the pod cannot be created.
	waitsFor map[podenv.Object]struct{}
	// warned are the warnings since the last success, so that a retry that fails
	// the same way adds no event.
	warned map[string]struct{}
}

// key is the record's in the queues.
func (r *podRecord) key() string { return string(r.id) }

// form returns the newest known form of the pod.
func (r *podRecord) form() *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pod
}

// desire makes status what the API should have, and reports whether it is: the first end is
// the end, sent already or not. r.mu is held.
func (r *podRecord) desire(status *corev1.PodStatus) bool {
	if r.ended() && status.Phase != r.desiredStatus.Phase {
		return false
	}
	r.desiredStatus = status
	if r.unsentSince.IsZero() {
		r.unsentSince = time.Now()
	}
	return true
}

// store records what the API made of the last patch. r.mu is held.
func (r *podRecord) store(pod *corev1.Pod) {
	r.stored = pod
	if !older(pod, r.pod) {
		r.renew(pod)
	}
}

// restored forgets what the API no longer has: its data were restored from a backup, in which pod is older than what this
// controller has seen and written. The status is compared with pod's again.
func (r *podRecord) restored(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored, r.sent = nil, nil
	r.renew(pod)
}

// renew records a newer form of the pod, also as the one that the provider was given if
// that is the same to it: of a pod that rests one form is kept in memory, that of the
// cache. r.mu is held.
func (r *podRecord) renew(pod *corev1.Pod) {
	r.pod, r.orphan = pod, false
	if r.lastApplied != nil && !specChanged(r.lastApplied, pod) {
		r.lastApplied = pod
	}
}

// shareStatus has the status that was sent share with the API's what they have in common, or be it: of a
// pod that rests that is in memory once. r.mu is held.
func (r *podRecord) shareStatus(inAPI *corev1.PodStatus) {
	own := r.sent
	shared := podstatus.Share(own, inAPI)
	for _, status := range []**corev1.PodStatus{&r.providerStatus, &r.desiredStatus, &r.sent, &r.refused, &r.insisted} {
		if *status == own {
			*status = shared
		}
	}
}

// progress is how far a pod has come at the provider, and towards its end.
type progress struct {
	observed    observed
	ran         bool // the provider held it at some time: it must not be created again
	begun       bool // by its status, a process before this one has had it created; this one has not
	cancelled   bool // its creation was, or begun: the provider may hold it all the same
	removed     bool // its removal was sent to the API server
	requested   requested
	requestedAt time.Time
	inspectedAt time.Time // when the provider was last asked for it
	missing     int       // how often in a row it was not found
	missedAt    time.Time // the first time of those
}

// unconfirmed reports whether the pod is lacking in the cache, and that is all that is
// known. r.mu is held.
func (r *podRecord) unconfirmed(pod *corev1.Pod) bool {
	return pod == nil && !r.gone && !r.orphan
}

// missed records that the provider does not know the pod. r.mu is held.
func (r *podRecord) missed() {
	r.observed = absent
	if r.missing++; r.missing == 1 {
		r.missedAt = time.Now()
	}
}

// found records that the provider holds the pod. r.mu is held.
func (r *podRecord) found() {
	r.missing, r.missedAt = 0, time.Time{}
}

// stopped reports whether the provider has reported that the pod runs no more.
// Before its end was requested only the phase counts, since containers that have
// ended may be started again, and may have been since that was reported. r.mu is held.
func (r *podRecord) stopped() bool {
	if r.providerStatus == nil {
		return false
	}
	return isTerminal(r.providerStatus.Phase) ||
		r.requested != requestedNone && r.observation > r.endSince && allTerminated(r.providerStatus)
}

// mayHaveStopped reports whether the containers had all ended before the pod's end was requested, by what is known. r.mu
// is held.
func (r *podRecord) mayHaveStopped() bool {
	return r.providerStatus != nil && allTerminated(r.providerStatus) && !r.stopped()
}

// comingPatience is for how long a pod that was created is taken for one that is coming to be, although its provider
// shows nothing of it: images of tens of gigabytes take as long to pull, and backends to buy a machine.
const comingPatience = 30 * time.Minute

// coming reports whether the pod is to run, was created by this process and has not been shown since: it may not be there
// yet. r.mu is held.
func (r *podRecord) coming(now time.Time) bool {
	return !r.createdAt.IsZero() && now.Sub(r.createdAt) < comingPatience && r.providerStatus == nil && !r.isToEnd()
}

// isToEnd reports whether the pod is not to run, or not any more. r.mu is held.
func (r *podRecord) isToEnd() bool {
	return r.orphan || r.gone || r.expired || r.requested != requestedNone || r.pod.DeletionTimestamp != nil ||
		isTerminal(r.pod.Status.Phase) || r.ended()
}

// ended reports whether the pod has ended for the API, or will have once the status is
// sent. r.mu is held.
func (r *podRecord) ended() bool {
	return r.desiredStatus != nil && isTerminal(r.desiredStatus.Phase)
}

func isTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func allTerminated(status *corev1.PodStatus) bool {
	if len(status.ContainerStatuses) == 0 {
		return false
	}
	for c := range podstatus.Containers(status) {
		if c.State.Terminated == nil {
			return false
		}
	}
	return true
}

// records is the table of all records, by UID and by name.
type records struct {
	mu     sync.RWMutex
	byUID  map[types.UID]*podRecord
	byName map[types.NamespacedName][]*podRecord // the oldest first
}

func (t *records) get(id types.UID) *podRecord {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byUID[id]
}

// getOrAdd returns the record of a pod. It adds one where there is none, and returns
// true then.
func (t *records) getOrAdd(id types.UID, pod *corev1.Pod, orphan bool) (*podRecord, bool) {
	if r := t.get(id); r != nil {
		return r, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.byUID[id]; r != nil {
		return r, false
	}
	if t.byUID == nil {
		t.byUID, t.byName = map[types.UID]*podRecord{}, map[types.NamespacedName][]*podRecord{}
	}
	r := &podRecord{id: id, name: nameOf(pod), seenAt: time.Now(), pod: pod, orphan: orphan, progress: progress{observed: unknown, begun: !orphan && createdBefore(pod)}}
	t.byUID[id], t.byName[r.name] = r, append(t.byName[r.name], r)
	return r, true
}

// drop removes a record, and returns the others of its name.
func (t *records) drop(r *podRecord) []*podRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byUID, r.id)
	others := slices.DeleteFunc(t.byName[r.name], func(other *podRecord) bool { return other == r })
	t.byName[r.name] = others
	if len(others) == 0 {
		delete(t.byName, r.name)
	}
	return slices.Clone(others)
}

// named returns the records of a name.
func (t *records) named(name types.NamespacedName) []*podRecord {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.byName[name])
}

// olderFirst reports whether another record of the name goes before r: before that of the
// pod that the API has all others, and before the others those that were there earlier.
func (t *records) olderFirst(r *podRecord, inAPI *corev1.Pod) bool {
	isInAPI := func(one *podRecord) bool { return inAPI != nil && one.id == inAPI.UID }
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, other := range t.byName[r.name] {
		switch {
		case other != r && !isInAPI(other):
			return true
		case other == r && !isInAPI(r):
			return false
		}
	}
	return false
}

func (t *records) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byUID)
}

// each calls f for every record of the moment, without holding the table.
func (t *records) each(f func(r *podRecord)) {
	t.mu.RLock()
	all := make([]*podRecord, 0, len(t.byUID))
	for _, r := range t.byUID {
		all = append(all, r)
	}
	t.mu.RUnlock()
	for _, r := range all {
		f(r)
	}
}
