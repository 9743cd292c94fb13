// Package nodemarks reads what a node.NodeController has written into its Node and its
// lease: whether it has stopped, which labels are its own, and which process has the
// node. The tests of package node check that what is written can be read.
package nodemarks

import (
	"encoding/json"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	// stoppedReason is the reason of the Ready condition that the last NodeController
	// writes at its end.
	stoppedReason = "KubeletStopped"
	// annotationOwned has the names of what a NodeController has put on its Node.
	annotationOwned = "virtual-kubelet.io/owned"
	// annotationHolder has the identity of the process that has a lease.
	annotationHolder = "virtual-kubelet.io/holder"
)

// Stopped reports whether no process keeps a Node any more, by its Ready condition:
// the last NodeController has written so, or the control plane has had no heartbeat of
// the node for so long that its state is unknown.
func Stopped(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown || c.Status == corev1.ConditionFalse && c.Reason == stoppedReason
		}
	}
	return false
}

// WroteLabel reports whether the label with that key is on a Node because a
// NodeController has put it there, and nobody else.
func WroteLabel(n *corev1.Node, key string) bool {
	if _, ok := n.Labels[key]; !ok {
		return false
	}
	var owned struct {
		Labels []string `json:"labels"`
	}
	if err := json.Unmarshal([]byte(n.Annotations[annotationOwned]), &owned); err != nil {
		return false
	}
	return slices.Contains(owned.Labels, key)
}

// Holder returns the identity of the process that has a node's lease; empty if none has.
func Holder(lease *coordinationv1.Lease) string { return lease.Annotations[annotationHolder] }
