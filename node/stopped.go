package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Stopped reports whether no process keeps a Node any more, by its Ready condition:
// the last NodeController has written so, or the control plane has had no heartbeat of
// the node for so long that its state is unknown.
func Stopped(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown || c.Status == corev1.ConditionFalse && c.Reason == nodeStoppedReason
		}
	}
	return false
}

// WroteLabel reports whether the label with that key is on a Node because a
// NodeController has put it there, and nobody else.
func WroteLabel(n *corev1.Node, key string) bool {
	_, ok := n.Labels[key]
	return ok && slices.Contains(ownedOf(n).Labels, key)
}
