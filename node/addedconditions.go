package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// WithNodeConditions adds conditions to those of the provider, which cannot change them,
// whenever the Node's status is compared with the API's. A condition that is False is
// written only where the Node has one of its type, so that the Node does not list what
// was never True. A Ready condition is ignored. The function must not block.
func WithNodeConditions(conditions func() []corev1.NodeCondition) NodeControllerOpt {
	return func(n *NodeController) error {
		n.conditions = append(n.conditions, conditions)
		return nil
	}
}

// addConditions puts added in the place of the provider's conditions of the same types,
// for a Node that has the current ones.
func addConditions(provider, added, current []corev1.NodeCondition) []corev1.NodeCondition {
	has := func(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) bool {
		return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	}
	added = slices.DeleteFunc(slices.Clone(added), func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	result := slices.DeleteFunc(slices.Clone(provider), func(c corev1.NodeCondition) bool { return has(added, c.Type) })
	for _, c := range added {
		if c.Status != corev1.ConditionFalse || has(current, c.Type) {
			result = append(result, c)
		}
	}
	return result
}
