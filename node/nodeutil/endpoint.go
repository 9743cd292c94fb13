package nodeutil

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// endpointStatus adds to a provider's node status the port on which the node can be
// reached, and the labels that every kubelet gives its node, unless the provider
// sets them. It also keeps what pods can read of the node: its addresses and its
// allocatable resources.
type endpointStatus struct {
	node.NodeProvider
	port   int32             // set before the node controller runs; 0 if nothing is served
	labels map[string]string // of the node as it was made

	allocatables *resourceLists // of the nodes in the process

	moved func() // called when it has other addresses; set before, too; may be nil

	all         atomic.Pointer[[]corev1.NodeAddress]
	ips         atomic.Pointer[[]string]
	allocatable atomic.Pointer[corev1.ResourceList]
}

func (e *endpointStatus) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	if e.port != 0 {
		notify(&corev1.Node{Status: corev1.NodeStatus{DaemonEndpoints: corev1.NodeDaemonEndpoints{
			KubeletEndpoint: corev1.DaemonEndpoint{Port: e.port},
		}}})
	}
	e.NodeProvider.NotifyNodeStatus(ctx, func(n *corev1.Node) {
		e.record(n)
		notify(e.labelled(n))
	})
}

// labelled returns n with the labels that all nodes have. A provider that sets all
// labels seldom knows of them: they are not in the node that it was given.
func (e *endpointStatus) labelled(n *corev1.Node) *corev1.Node {
	if n == nil || n.Labels == nil {
		return n
	}
	next := *n
	next.Labels = maps.Clone(n.Labels)
	for _, label := range commonLabels {
		if next.Labels[label] == "" {
			next.Labels[label] = e.labels[label]
		}
	}
	return &next
}

// record records addresses and resources of the node; those that it lacks stay.
func (e *endpointStatus) record(n *corev1.Node) {
	if n == nil {
		return
	}
	if len(n.Status.Addresses) > 0 {
		ips, all := hostIPs(n), slices.Clone(n.Status.Addresses)
		e.ips.Store(&ips)
		e.all.Store(&all)
		if e.moved != nil {
			e.moved()
		}
	}
	if len(n.Status.Allocatable) > 0 {
		allocatable := e.allocatables.shared(n.Status.Allocatable)
		e.allocatable.Store(&allocatable)
	}
}

func (e *endpointStatus) addresses() []corev1.NodeAddress {
	if all := e.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (e *endpointStatus) hostIPs() []string {
	if ips := e.ips.Load(); ips != nil {
		return *ips
	}
	return nil
}

func (e *endpointStatus) nodeAllocatable() corev1.ResourceList {
	if allocatable := e.allocatable.Load(); allocatable != nil {
		return *allocatable
	}
	return nil
}
