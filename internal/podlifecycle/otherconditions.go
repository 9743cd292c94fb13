package podlifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// kubeletConditions are the types of the conditions that a kubelet owns. What the
// provider reports of them is written.
var kubeletConditions = map[corev1.PodConditionType]bool{
	corev1.PodScheduled:              true,
	corev1.PodInitialized:            true,
	corev1.PodReadyToStartContainers: true,
	corev1.ContainersReady:           true,
	corev1.PodReady:                  true,
	corev1.PodResizePending:          true,
	corev1.PodResizeInProgress:       true,
	corev1.AllContainersRestarting:   true,
}

// maxSeen bounds what is remembered of the conditions of others on one pod.
const maxSeen = 32

// otherConditions distinguishes, among the conditions of other types that a provider
// reports, copies of those that it was given from its own. Many providers report the
// pod that they were given, whose conditions others have changed since.
type otherConditions struct {
	seen []corev1.PodCondition            // what the API has had of others
	own  map[corev1.PodConditionType]bool // the provider has reported one of its own
}

// see remembers what the API has.
func (o *otherConditions) see(conditions []corev1.PodCondition) {
	for i := range conditions {
		if c := &conditions[i]; !kubeletConditions[c.Type] && !o.own[c.Type] {
			o.remember(c)
		}
	}
}

func (o *otherConditions) remember(c *corev1.PodCondition) {
	if o.knows(c) {
		return
	}
	if len(o.seen) >= maxSeen {
		o.seen = slices.Delete(o.seen, 0, 1)
	}
	o.seen = append(o.seen, *c)
}

func (o *otherConditions) knows(c *corev1.PodCondition) bool {
	return slices.ContainsFunc(o.seen, func(s corev1.PodCondition) bool {
		return s.Type == c.Type && s.Status == c.Status && s.Reason == c.Reason && s.Message == c.Message &&
			s.LastTransitionTime.Unix() == c.LastTransitionTime.Unix()
	})
}

// without returns the reported conditions without copies of those of others; current
// are the API's.
func (o *otherConditions) without(current, reported []corev1.PodCondition) []corev1.PodCondition {
	o.see(current)
	isCopy := func(c corev1.PodCondition) bool {
		switch {
		case kubeletConditions[c.Type] || o.own[c.Type]:
			return false
		case o.knows(&c):
			return true
		}
		i := slices.IndexFunc(current, func(m corev1.PodCondition) bool { return m.Type == c.Type })
		if i >= 0 && !c.LastTransitionTime.IsZero() && c.LastTransitionTime.Unix() <= current[i].LastTransitionTime.Unix() {
			o.remember(&c) // older than what the API has: from before we looked
			return true
		}
		if o.own == nil {
			o.own = map[corev1.PodConditionType]bool{}
		}
		o.own[c.Type] = true
		return false
	}
	if !slices.ContainsFunc(reported, isCopy) {
		return reported
	}
	return slices.DeleteFunc(slices.Clone(reported), isCopy)
}
