// Package nodemarks reads what a node.NodeController has written into its Node and its
// lease: whether it has stopped, which labels are its own, which process has the node, and
// when it last renewed that. The tests of package node check that what is written can be read.
package nodemarks

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	// stoppedReason is the reason of the Ready condition that the last NodeController
	// writes at its end.
	stoppedReason = "KubeletStopped"
	// annotationOwned has the names of what a NodeController has put on its Node.
	annotationOwned = "virtual-kubelet.io/owned"
	// annotationHolder has the identity of the process that has a lease, and
	// annotationHolderGroup the group of processes that it belongs to.
	annotationHolder      = "virtual-kubelet.io/holder"
	annotationHolderGroup = "virtual-kubelet.io/holder-group"
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

// HolderGroup returns the group of the process that has a node's lease; empty if it is in
// none, or no process has the lease.
func HolderGroup(lease *coordinationv1.Lease) string {
	return lease.Annotations[annotationHolderGroup]
}

// Made reports whether a virtual kubelet has made a Node, or keeps it: of this library, or
// of one before it that gave its Nodes a label only.
func Made(n *corev1.Node) bool {
	_, labelled := n.Labels["virtual-kubelet.io/provider"]
	return labelled || n.Labels["type"] == "virtual-kubelet" || n.Annotations[annotationOwned] != ""
}

// Age returns how long ago a lease was renewed, and whether it lasts still, by the API
// server's clock, which is ahead of this machine's by skew. A lease that does not say how
// long it lasts does so for otherwise.
func Age(lease *coordinationv1.Lease, skew, otherwise time.Duration) (age time.Duration, lasts bool) {
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		otherwise = time.Duration(*seconds) * time.Second
	}
	renewed, _ := Renewed(lease)
	age = max((time.Since(renewed) + skew).Round(time.Second), 0)
	return age, !renewed.IsZero() && age <= otherwise
}

// Renewed returns when a lease was renewed last, by the API server's clock and by that of
// the process that did. Where the API server does not record writes, both are that
// process's; both are zero if the lease was never renewed.
func Renewed(lease *coordinationv1.Lease) (byServer, byHolder time.Time) {
	if lease.Spec.RenewTime == nil {
		return time.Time{}, time.Time{}
	}
	byHolder = lease.Spec.RenewTime.Time
	for _, entry := range lease.ManagedFields {
		if entry.Time != nil && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:renewTime"`) && entry.Time.After(byServer) {
			byServer = entry.Time.Time
		}
	}
	if byServer.IsZero() {
		byServer = byHolder
	}
	return byServer, byHolder
}
