package podlifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// minGrace is the least time that a pod gets to stop, as in a kubelet.
	minGrace = time.Second
	// killSlack is added to a grace period before the provider is asked to kill: it
	// measures that period too, and begins a moment later.
	killSlack = time.Second
	// lateSlack is added to it where a kubelet itself takes longer. It asks some containers
	// to end only when the grace period is over, since preStop hooks or those that end before
	// them have used it up, and gives them two seconds. A pod engine waits up to two more
	// for those that are killed before them.
	lateSlack = 4 * time.Second
)

// ending is how a pod ends.
type ending struct {
	grace    time.Duration // zero: it is not to end
	deadline time.Time     // of the stop that the provider has accepted
}

// ends records that the pod is to end within its grace period. A grace period can
// only become shorter, and then counts from the moment at which that is seen.
func (e *ending) ends(pod *corev1.Pod, now time.Time) {
	grace := graceOf(pod)
	if e.grace != 0 && e.grace <= grace {
		return
	}
	e.grace = grace
	if deadline := now.Add(grace); deadline.Before(e.deadline) {
		e.deadline = deadline
	}
}

// stops records that the provider has accepted to stop the pod. Its grace period
// counts from then: the time that the API server has stamped on the deletion may be
// long past (a partition, an upgrade of the agent), or be that of another clock.
func (e *ending) stops(now time.Time) {
	if e.deadline.IsZero() {
		e.deadline = now.Add(e.grace)
	}
}

// killAt returns when the pod is to be killed, if it was asked to stop.
func (e *ending) killAt(pod *corev1.Pod) time.Time {
	if endsLate(pod) {
		return e.deadline.Add(killSlack + lateSlack)
	}
	return e.deadline.Add(killSlack)
}

// endsLate reports whether containers may be asked to end only when the grace period is
// over: sidecars, which end after the others, and those with a preStop hook.
func endsLate(pod *corev1.Pod) bool {
	hasHook := func(c corev1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PreStop != nil }
	isSidecar := func(c corev1.Container) bool {
		return ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, isSidecar) || slices.ContainsFunc(pod.Spec.Containers, hasHook)
}

// graceOf returns how long a pod may take to end, as a kubelet has it: what the
// deletion says, else, and where that says zero, what the spec says; at least a
// second.
func graceOf(pod *corev1.Pod) time.Duration {
	seconds := ptr.Deref(pod.DeletionGracePeriodSeconds, 0)
	if seconds <= 0 {
		seconds = ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	}
	return max(time.Duration(seconds)*time.Second, minGrace)
}
