package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// SetCondition has the Node carry a condition of the process's own, beside those of
// the provider, which cannot change it from then on. It replaces one of its type that
// was set before. One that is False is written only where the Node has it, so that what
// was never true is not said. It can be called at any time, also before Run, from any
// goroutine, and does not block.
func (n *NodeController) SetCondition(condition corev1.NodeCondition) {
	n.mu.Lock()
	n.own = append(without(n.own, condition.Type), condition)
	n.mu.Unlock()
	select {
	case n.notified <- struct{}{}:
	default: // the loop is about to look anyway
	}
}

// without returns conditions without those of a type. It does not change them.
func without(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.NodeCondition) bool { return c.Type == kind })
}

// ownConditions returns the provider's conditions with own in the place of those of the
// same types, for a Node that has the current ones.
func ownConditions(provider, own, current []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range own {
		provider = without(provider, c.Type)
		has := slices.ContainsFunc(current, func(m corev1.NodeCondition) bool { return m.Type == c.Type })
		if c.Status != corev1.ConditionFalse || has {
			provider = append(provider, c)
		}
	}
	return provider
}
