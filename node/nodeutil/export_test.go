package nodeutil

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
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

// BeginPods has the pod controller of a node begin that does not run, until end is called.
func BeginPods(ctx context.Context, n *Node) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	stop := n.shared.start(ctx, group)
	wait, err := n.pods.Start(ctx, 1)
	if err != nil {
		wait = func() {}
	}
	return func() {
		cancel()
		wait()
		stop()
		_ = group.Wait() // nothing returns an error
	}, err
}

// SpecOf is the Node that n registers.
func SpecOf(n *Node) *corev1.Node { return &n.cfg.NodeSpec }
