package nodeutil

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// endpointTeller adds to what a provider says of its node the port on which it
// can be reached, where the provider does not say. It also keeps the node's
// addresses, which pods get as host IPs.
type endpointTeller struct {
	node.NodeProvider
	port int32 // set before the node controller runs; 0 if nothing is served

	ips atomic.Pointer[[]string]
}

func (e *endpointTeller) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	if e.port != 0 {
		notify(&corev1.Node{Status: corev1.NodeStatus{DaemonEndpoints: corev1.NodeDaemonEndpoints{
			KubeletEndpoint: corev1.DaemonEndpoint{Port: e.port},
		}}})
	}
	e.NodeProvider.NotifyNodeStatus(ctx, func(n *corev1.Node) {
		e.keepHostIPs(n)
		notify(n)
	})
}

func (e *endpointTeller) keepHostIPs(n *corev1.Node) {
	if n == nil || len(n.Status.Addresses) == 0 {
		return // nothing said is nothing changed
	}
	ips := hostIPs(n)
	e.ips.Store(&ips)
}

func (e *endpointTeller) hostIPs() []string {
	if ips := e.ips.Load(); ips != nil {
		return *ips
	}
	return nil
}
