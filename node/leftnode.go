package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Stopped tells whether nobody keeps a Node any more, as far as it says itself:
// the last NodeController has said so, or the control plane has not heard of the
// node for so long that it does not know how it is.
func Stopped(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown || c.Status == corev1.ConditionFalse && c.Reason == nodeStoppedReason
		}
	}
	return false
}

// WroteLabel tells whether the label with that key is on a Node because a
// NodeController has put it there, and nobody else.
func WroteLabel(n *corev1.Node, key string) bool {
	_, ok := n.Labels[key]
	return ok && slices.Contains(ownedOf(n).Labels, key)
}
