package nodeutil

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// RoutesOf are the routes that AttachProviderRoutes serves.
func RoutesOf(n *Node, p Provider) []api.Route {
	return n.routes(p, prometheus.NewRegistry())
}

// WatchPods has a node that does not run know its pods, until ctx ends.
func WatchPods(ctx context.Context, n *Node) {
	go n.shared.pods.Run(ctx)
	<-n.known.Synced()
}

// SpecOf is the Node that n registers.
func SpecOf(n *Node) *corev1.Node { return &n.cfg.NodeSpec }
