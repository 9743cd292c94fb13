package kubernetes

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// describe says in the node what is known before the remote cluster is asked.
func (p *Provider) describe(n *corev1.Node) {
	capacity := maps.Clone(p.cfg.Capacity.Resources)
	n.Status.Capacity, n.Status.Allocatable = capacity, maps.Clone(capacity)
}

// Ping implements node.NodeProvider: the node is well while the remote API server
// is ready, and has not the objects of another home cluster with the same names.
func (p *Provider) Ping(ctx context.Context) error {
	if err := p.identified(ctx); err != nil {
		return err
	}
	if err := p.remote.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the remote cluster cannot be reached: %w", err))
	}
	return nil
}

// NotifyNodeStatus implements node.NodeProvider: the capacity follows the remote
// cluster's, where the configuration says so.
func (p *Provider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	if p.cfg.Capacity.Source == CapacityFixed {
		return
	}
	n := p.home.Node.DeepCopy()
	run := log.WithLogger(p.ctx, log.G(ctx))
	p.running.Go(func() { p.followCapacity(run, n, notify) })
}
