package mock

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTypes are the conditions that each pod has.
var conditionTypes = [...]corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
}

// lastCondition is whether a condition holds, if that is known, and since when.
type lastCondition struct {
	since        metav1.Time
	known, holds bool
}

// lastConditions returns those that a pod has in the API.
func lastConditions(inAPI []corev1.PodCondition) (last [len(conditionTypes)]lastCondition) {
	for i := range inAPI {
		if n := slices.Index(conditionTypes[:], inAPI[i].Type); n >= 0 {
			last[n] = lastCondition{
				since: inAPI[i].LastTransitionTime,
				known: inAPI[i].Status != corev1.ConditionUnknown, holds: inAPI[i].Status == corev1.ConditionTrue,
			}
		}
	}
	return last
}

// recordConditions records the conditions as they are now. Those whose status is the same
// keep their time.
func (h *held) recordConditions(now time.Time) {
	started, ended, ready := !h.first.IsZero(), h.stage == stageEnded, h.current.isReady()
	initialized := started || !ended && !h.initializes()
	for i, holds := range [len(conditionTypes)]bool{started && !ended, initialized, ready, ready, true} {
		if last := &h.conditions[i]; !last.known || last.holds != holds {
			*last = lastCondition{since: metav1.NewTime(now), known: true, holds: holds}
		}
	}
}

// initializes reports whether the pod has containers that run before the others.
func (h *held) initializes() bool {
	return slices.ContainsFunc(h.pod.containers, func(c container) bool { return c.kind == kindInit || c.kind == kindSidecar })
}

// renderConditions returns the recorded conditions, with the reasons for those that do not hold.
func (h *held) renderConditions() []corev1.PodCondition {
	list := make([]corev1.PodCondition, len(conditionTypes))
	for i, last := range h.conditions {
		c := &list[i]
		*c = corev1.PodCondition{
			Type: conditionTypes[i], Status: corev1.ConditionTrue, LastTransitionTime: last.since, ObservedGeneration: h.pod.generation,
		}
		if !last.holds {
			c.Status = corev1.ConditionFalse
			c.Reason, c.Message = h.why(c.Type)
		}
	}
	return list
}

// why returns the reason why a condition does not hold.
func (h *held) why(condition corev1.PodConditionType) (reason, message string) {
	switch ended := h.stage == stageEnded; {
	case condition == corev1.PodInitialized && !ended:
		return "ContainersNotInitialized", "containers are not initialized"
	case condition != corev1.PodReady && condition != corev1.ContainersReady:
		return "", ""
	case !ended:
		return "ContainersNotReady", "containers are not ready"
	case h.phase() == corev1.PodSucceeded:
		return "PodCompleted", ""
	}
	return "PodFailed", ""
}
