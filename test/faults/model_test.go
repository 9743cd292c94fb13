package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// model is a provider that does what a good one does, and takes down what it was
// asked for.
type model struct {
	shape shape
	audit podAuditor

	mu     sync.Mutex
	pods   map[types.UID]*held
	ran    map[types.UID]int // how often a pod was taken on
	notify func(*corev1.Pod)
}

// podAuditor sees what the model is asked for, with the model's lock held.
type podAuditor interface {
	auditCreate(m *model, pod *corev1.Pod)
	auditEndOf(m *model, asked, held *corev1.Pod)
}

// held is a pod that the model holds.
type held struct {
	pod      *corev1.Pod // never changed, only replaced
	stopping bool
	timer    *time.Timer // what happens to it next
}

// shape is which of the optional interfaces a provider has.
type shape struct{ notifies, byUID bool }

func (s shape) String() string {
	words := []string{"poll"}
	if s.notifies {
		words = []string{"notify"}
	}
	if s.byUID {
		words = append(words, "uid")
	}
	return strings.Join(words, "-")
}

var shapes = []shape{{}, {notifies: true}, {byUID: true}, {true, true}}

// The behaviours of pods, by their label.
const (
	behaviour = "behaviour"
	runs      = "runs"
	ends      = "ends"    // with success, after a while
	fails     = "fails"   // after a while
	slow      = "slow"    // to start
	lingers   = "lingers" // when it is asked to stop, until it is killed
)

var behaviours = []string{runs, ends, fails, slow, lingers}

const (
	startsSlowly = 15 * time.Second
	runsFor      = 20 * time.Second
	stopsIn      = 2 * time.Second
	shownFor     = 3 * time.Second // after it has stopped
)

func newModel(shape shape, audit podAuditor) *model {
	return &model{shape: shape, audit: audit, pods: map[types.UID]*held{}, ran: map[types.UID]int{}}
}

// handler returns the model as a provider of its shape.
func (m *model) handler() node.PodLifecycleHandler {
	switch m.shape {
	case shape{notifies: true}:
		return struct {
			byName
			notifying
		}{byName{m}, notifying{m}}
	case shape{byUID: true}:
		return byUID{byName{m}}
	case shape{notifies: true, byUID: true}:
		return struct {
			byUID
			notifying
		}{byUID{byName{m}}, notifying{m}}
	}
	return byName{m}
}

// close ends what would still happen.
func (m *model) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.pods {
		h.timer.Stop()
	}
}

// holds returns the pod of a UID, or nil.
func (m *model) holds(uid types.UID) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.pods[uid]; h != nil {
		return h.pod
	}
	return nil
}

// all returns what is held, by name.
func (m *model) all() []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(m.pods))
	for _, h := range m.pods {
		pods = append(pods, h.pod)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name+string(a.UID), b.Name+string(b.UID)) })
	return pods
}

// named returns the pods of a name. m.mu is held.
func (m *model) named(namespace, name string) (found []*held) {
	for _, h := range m.pods {
		if h.pod.Namespace == namespace && h.pod.Name == name {
			found = append(found, h)
		}
	}
	return found
}

// hasNamed reports whether a pod of that name is held.
func (m *model) hasNamed(namespace, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.named(namespace, name)) > 0
}

// occupied reports whether another pod of that name is there, other than one that
// was deleted, has stopped and is only shown still. m.mu is held.
func (m *model) occupied(pod *corev1.Pod) bool {
	return slices.ContainsFunc(m.named(pod.Namespace, pod.Name), func(h *held) bool {
		return h.pod.UID != pod.UID && !(h.stopping && isTerminal(h.pod.Status.Phase))
	})
}

// wanted returns the pod that is meant by one that the caller has. m.mu is held.
func (m *model) wanted(pod *corev1.Pod) *held {
	if m.shape.byUID {
		return m.pods[pod.UID]
	}
	if found := m.named(pod.Namespace, pod.Name); len(found) > 0 {
		return found[0]
	}
	return nil
}

// later has f called with the pod of a UID once d has passed, in place of what
// was to happen to it. m.mu is held.
func (m *model) later(uid types.UID, d time.Duration, f func(h *held)) {
	h := m.pods[uid]
	if h.timer != nil {
		h.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		m.mu.Lock()
		if m.pods[uid] == h && h.timer == timer { // it may have waited for the lock too long
			f(h)
		}
		m.mu.Unlock()
	})
	h.timer = timer
}

// become gives a pod a new status, and notifies. m.mu is held.
func (m *model) become(h *held, phase corev1.PodPhase) {
	logEvent("provider: %s (%s) is %s", h.pod.Name, h.pod.UID, phase)
	pod := h.pod.DeepCopy()
	pod.Status = statusOf(pod, phase)
	h.pod = pod
	if m.notify != nil {
		// Not under the lock, but in order.
		notify := m.notify
		m.mu.Unlock()
		notify(pod.DeepCopy())
		m.mu.Lock()
	}
}

// logf, if it is set, logs what happens. It is for one history at a time.
var logf func(format string, args ...any)

func logEvent(format string, args ...any) {
	if logf != nil {
		logf(format, args...)
	}
}

func (m *model) create(pod *corev1.Pod) error {
	logEvent("provider: create %s (%s)", pod.Name, pod.UID)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.audit.auditCreate(m, pod)
	if m.pods[pod.UID] != nil {
		return errdefs.AsConflict(fmt.Errorf("pod %s is there already", pod.UID))
	}
	if !m.shape.byUID {
		for _, old := range m.named(pod.Namespace, pod.Name) {
			m.forget(old) // it takes its place
		}
	}
	pod = pod.DeepCopy()
	pod.Status = statusOf(pod, corev1.PodPending)
	h := &held{pod: pod}
	m.pods[pod.UID] = h
	m.ran[pod.UID]++
	start := 100 * time.Millisecond
	if pod.Labels[behaviour] == slow {
		start = startsSlowly
	}
	m.later(pod.UID, start, func(h *held) {
		last := corev1.PodSucceeded
		switch pod.Labels[behaviour] {
		case fails:
			last = corev1.PodFailed
			fallthrough
		case ends:
			m.later(pod.UID, runsFor, func(h *held) { m.become(h, last) })
		}
		m.become(h, corev1.PodRunning)
	})
	return nil
}

func (m *model) update(pod *corev1.Pod) error {
	logEvent("provider: update %s (%s)", pod.Name, pod.UID)
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.wanted(pod)
	if h == nil {
		return errdefs.NotFoundf("there is no pod %s", pod.Name)
	}
	if h.pod.UID != pod.UID {
		return errdefs.AsConflict(fmt.Errorf("pod %s is another one", pod.Name))
	}
	status := h.pod.Status
	h.pod = pod.DeepCopy()
	h.pod.Status = status
	return nil
}

func (m *model) delete(pod *corev1.Pod) error {
	logEvent("provider: delete %s (%s), grace period %d", pod.Name, pod.UID, ptr.Deref(pod.DeletionGracePeriodSeconds, -1))
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.wanted(pod)
	if h == nil {
		return errdefs.NotFoundf("there is no pod %s", pod.Name)
	}
	m.audit.auditEndOf(m, pod, h.pod)
	uid := h.pod.UID
	kill := ptr.Deref(pod.DeletionGracePeriodSeconds, 0) == 0
	ended := isTerminal(h.pod.Status.Phase)
	switch {
	case ended && !h.stopping:
		m.forget(h)
	case kill && !ended:
		h.stopping = true
		m.end(h)
	case ended || h.stopping:
	default:
		h.stopping = true
		if h.pod.Labels[behaviour] != lingers {
			m.later(uid, stopsIn, m.end)
		}
	}
	return nil
}

// end ends a pod that was asked to stop. m.mu is held.
func (m *model) end(h *held) {
	m.later(h.pod.UID, shownFor, m.forget)
	m.become(h, corev1.PodSucceeded)
}

func (m *model) forget(h *held) {
	logEvent("provider: forget %s (%s)", h.pod.Name, h.pod.UID)
	h.timer.Stop()
	delete(m.pods, h.pod.UID)
}

func isTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func statusOf(pod *corev1.Pod, phase corev1.PodPhase) corev1.PodStatus {
	state, ready := corev1.ContainerState{}, corev1.ConditionFalse
	at := metav1.Time{Time: time.Now().Truncate(time.Second)} // as the API keeps it
	switch phase {
	case corev1.PodPending:
		state.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	case corev1.PodRunning:
		state.Running, ready = &corev1.ContainerStateRunning{StartedAt: at}, corev1.ConditionTrue
	case corev1.PodSucceeded:
		state.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: at}
	case corev1.PodFailed:
		state.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, FinishedAt: at}
	}
	return corev1.PodStatus{
		Phase:      phase,
		PodIP:      "10.0.0.1",
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state, Ready: ready == corev1.ConditionTrue,
		}},
	}
}

// byName, byUID and notifying are the model's methods as a provider.
type (
	byName    struct{ m *model }
	byUID     struct{ byName }
	notifying struct{ m *model }
)

func (p byName) CreatePod(_ context.Context, pod *corev1.Pod) error { return p.m.create(pod) }
func (p byName) UpdatePod(_ context.Context, pod *corev1.Pod) error { return p.m.update(pod) }
func (p byName) DeletePod(_ context.Context, pod *corev1.Pod) error { return p.m.delete(pod) }
func (p byName) GetPods(context.Context) ([]*corev1.Pod, error)     { return p.m.all(), nil }

func (p byName) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.get(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func (p byName) get(like *corev1.Pod) (*corev1.Pod, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if h := p.m.wanted(like); h != nil {
		return h.pod, nil
	}
	return nil, errdefs.NotFoundf("there is no pod %s", like.Name)
}

func (p byName) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p byUID) GetPodByUID(_ context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	return p.get(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}})
}

func (p byUID) GetPodStatusByUID(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PodStatus, error) {
	pod, err := p.GetPodByUID(ctx, namespace, name, uid)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (n notifying) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.m.notify = notify
}

var _ node.PodUIDLifecycleHandler = byUID{}
