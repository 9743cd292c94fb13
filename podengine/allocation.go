package podengine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// allocate gives a worker the newest form of its pod. Larger resources than the
// node has left are kept back: the pod stays as it is but for them, until there
// is room, or it asks for less (KEP-1287).
func (e *Engine) allocate(w *worker, wanted *corev1.Pod) error {
	e.allocating.Lock()
	defer e.allocating.Unlock()
	before, _ := w.current()
	err := e.allocateLocked(w, wanted)
	if after, _ := w.current(); lessThan(podspec.Requests(after), podspec.Requests(before)) {
		e.retry() // there is room now
	}
	return err
}

// allocateLocked is allocate for callers that hold the lock.
func (e *Engine) allocateLocked(w *worker, wanted *corev1.Pod) error {
	before := w.desiredState()
	next := desired{pod: wanted}
	if pending := e.refusal(w, before.pod, wanted); pending != nil {
		next.pod = withResourcesOf(wanted, before.pod)
		next.resize = &resize{wanted: wanted, pending: *pending, since: time.Now()}
		if before.isDeferred() {
			next.resize.since = before.resize.since
		}
		if before.resize == nil || before.resize.pending != *pending {
			e.cfg.Events.Event(wanted, corev1.EventTypeWarning, eventResizePrefix+pending.Reason, "Pod resize "+pending.Reason+": "+pending.Message)
		}
	}
	return w.change(func(d desired) desired {
		d.pod, d.resize = next.pod, next.resize
		return d
	})
}

// refusal is why the node does not give a pod the resources that it asks for
// now; nil if it does.
func (e *Engine) refusal(w *worker, before, wanted *corev1.Pod) *podspec.Resize {
	if e.cfg.NodeAllocatable == nil {
		return nil
	}
	var others []*corev1.Pod
	for _, other := range e.all() {
		if pod, _ := other.current(); other != w && !other.hasEnded() {
			others = append(others, pod)
		}
	}
	return refuse(before, wanted, others, e.cfg.NodeAllocatable())
}

// refuse decides about the resources that a pod asks for beyond those that it has,
// in the kubelet's words. What it has it keeps, and what the node does not count
// is there.
func refuse(before, wanted *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) *podspec.Resize {
	has, wants := podspec.Requests(before), podspec.Requests(wanted)
	var deferred *podspec.Resize
	for _, name := range resizable {
		room, counted := allocatable[name]
		want := wants[name]
		if old := has[name]; !counted || want.Cmp(old) <= 0 {
			continue
		}
		amount, capacity := inUnits(name, want.MilliValue()), inUnits(name, room.MilliValue())
		if want.Cmp(room) > 0 {
			return &podspec.Resize{
				Reason:     corev1.PodReasonInfeasible,
				Message:    fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, amount, capacity),
				Generation: wanted.Generation,
			}
		}
		var used int64 // in thousandths
		for _, other := range others {
			request := podspec.Requests(other)[name]
			used += request.MilliValue()
		}
		if deferred == nil && used+want.MilliValue() > room.MilliValue() {
			deferred = &podspec.Resize{
				Reason:     corev1.PodReasonDeferred,
				Message:    fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, amount, inUnits(name, used), capacity),
				Generation: wanted.Generation,
			}
		}
	}
	return deferred
}

// inUnits converts thousandths into what messages count in: thousandths of CPUs,
// bytes of memory.
func inUnits(name corev1.ResourceName, milli int64) int64 {
	if name == corev1.ResourceCPU {
		return milli
	}
	return milli / 1000
}

// lessThan reports whether any of the resources is less than before.
func lessThan(now, before corev1.ResourceList) bool {
	for _, name := range resizable {
		if before.Name(name, "").Cmp(*now.Name(name, "")) > 0 {
			return true
		}
	}
	return false
}

// withResourcesOf is a pod with the resources of an earlier form of it.
func withResourcesOf(pod, before *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	before = before.DeepCopy()
	pod.Spec.Resources = before.Spec.Resources
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		if _, old := findContainer(before, c.Name); old != nil {
			c.Resources = old.Resources
		}
	})
	return pod
}

// retryDeferred tries the resizes again that wait for room: those of pods with
// the highest priority first, then those of the better QoS class, then those that
// have waited longest.
func (e *Engine) retryDeferred() {
	e.allocating.Lock()
	defer e.allocating.Unlock()
	e.retry()
}

// retry is retryDeferred for callers that hold the lock. A resize may free one
// resource while it takes another, for pods that could not be served before.
func (e *Engine) retry() {
	for e.retryOnce() {
	}
}

// retryOnce retries all pods that wait, and reports whether any was served.
func (e *Engine) retryOnce() (served bool) {
	type waiting struct {
		*worker
		asked desired
	}
	var queue []waiting
	for _, w := range e.all() {
		if d := w.desiredState(); d.isDeferred() {
			queue = append(queue, waiting{w, d})
		}
	}
	slices.SortFunc(queue, func(a, b waiting) int { return compareDeferred(a.asked, b.asked) })
	for _, w := range queue {
		if e.refusal(w.worker, w.asked.pod, w.asked.wanted()) != nil {
			continue
		}
		if err := e.allocateLocked(w.worker, w.asked.wanted()); err != nil {
			log.G(e.ctx).WithError(err).Warn("Cannot keep what resources a pod has: after a restart of this process it may have to wait for them again")
		}
		w.nudge()
		served = true
	}
	return served
}

// isDeferred reports whether the pod waits for resources.
func (d desired) isDeferred() bool {
	return d.resize != nil && d.resize.pending.Reason == corev1.PodReasonDeferred
}

// compareDeferred orders pods that wait, the first to be served first.
func compareDeferred(a, b desired) int {
	ranks := map[corev1.PodQOSClass]int{corev1.PodQOSGuaranteed: 0, corev1.PodQOSBurstable: 1, corev1.PodQOSBestEffort: 2}
	return cmp.Or(
		cmp.Compare(ptr.Deref(b.pod.Spec.Priority, 0), ptr.Deref(a.pod.Spec.Priority, 0)),
		cmp.Compare(ranks[podspec.QOSClass(a.pod)], ranks[podspec.QOSClass(b.pod)]),
		a.resize.since.Compare(b.resize.since),
	)
}

// hasEnded reports whether nothing of the pod runs any more, and nothing will.
func (w *worker) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed != nil && w.observed.Ended
}

// resizes are what the status says of a resize: whether one waits, and whether
// containers do not run yet with what they were given.
func (w *worker) resizes(pod *corev1.Pod, seen *runtimeView) (pending, inProgress *podspec.Resize) {
	if d := w.desiredState(); d.resize != nil {
		pending = &d.resize.pending
	}
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		inc := seen.newest(c.Name)
		if inc == nil || inc.phase != running {
			return
		}
		if resize, _ := resizeOf(c, inc, w.applied); !resize {
			return
		}
		if inProgress == nil {
			inProgress = &podspec.Resize{}
		}
		if f, failed := w.failures[c.Name]; failed && inProgress.Reason == "" {
			inProgress.Reason, inProgress.Message = corev1.PodReasonError, f.message
		}
	})
	return pending, inProgress
}
