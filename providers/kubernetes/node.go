package kubernetes

import (
	"context"
	"maps"
	"time"

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
// is ready and lists or watches the pods, and has not the objects of another home cluster with the same names.
// Where the configuration says so it stays well for a while without: see outage.
func (p *Provider) Ping(ctx context.Context) error {
	keep := p.cfg.Unreachable.KeepReady.Duration
	if keep == 0 {
		return p.ping(ctx)
	}
	timed, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok { // an answer has to come before it, also where there is none
		timed, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
	}
	defer cancel()
	return p.outage.observe(p.ping(timed), keep)
}

func (p *Provider) ping(ctx context.Context) error {
	if err := p.identified(ctx); err != nil {
		return err
	}
	if err := p.remote.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return errdefs.AsUnavailable(remoteError("ask whether it is ready", err))
	}
	if err := p.feed.check(); err != nil {
		return errdefs.AsUnavailable(remoteError("list and watch the pods", err))
	}
	return nil
}

// NotifyNodeStatus implements node.NodeProvider: the capacity follows the remote
// cluster's, and a taint whether that can be reached, where the configuration says so.
func (p *Provider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	p.outage.attach(p.home.Node.Spec.Taints, notify)
	if p.cfg.Capacity.Source == CapacityFixed {
		return
	}
	n := p.home.Node.DeepCopy()
	n.Spec.Taints = nil // they are the outage's
	run := log.WithLogger(p.ctx, log.G(ctx))
	p.running.Go(func() { p.followCapacity(run, n, notify) })
}
