package machine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pressures are the conditions of a node that runs out of something, with their
// reasons and messages while they hold and while they do not, in the kubelet's words.
var pressures = []struct {
	condition           corev1.NodeConditionType
	reason, message     string
	noReason, noMessage string
}{
	{corev1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	{corev1.NodeDiskPressure, "KubeletHasDiskPressure", "kubelet has disk pressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	{corev1.NodePIDPressure, "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
}

// conditions are those of a node with the given pressures; the ones of before keep
// the time of their last transition.
func conditions(held []corev1.NodeConditionType, before []corev1.NodeCondition, now metav1.Time) (all []corev1.NodeCondition) {
	for _, p := range pressures {
		c := corev1.NodeCondition{
			Type: p.condition, Status: corev1.ConditionFalse, Reason: p.noReason, Message: p.noMessage,
			LastHeartbeatTime: now, LastTransitionTime: now,
		}
		if slices.Contains(held, p.condition) {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, p.reason, p.message
		}
		if i := slices.IndexFunc(before, func(was corev1.NodeCondition) bool { return was.Type == c.Type }); i >= 0 && before[i].Status == c.Status {
			c.LastTransitionTime = before[i].LastTransitionTime
		}
		all = append(all, c)
	}
	return all
}

// underPressure reports the conditions that hold now.
func (h *host) underPressure(held []corev1.NodeConditionType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pressure, h.pressed = conditions(held, h.pressure, metav1.Now()), true
	h.report()
}

// describePressure says in a node what it is short of. h.mu is held.
func (h *host) describePressure(n *corev1.Node) {
	for _, c := range h.pressure {
		if i := slices.IndexFunc(n.Status.Conditions, func(was corev1.NodeCondition) bool { return was.Type == c.Type }); i >= 0 {
			n.Status.Conditions[i] = c
		} else {
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
	}
}
