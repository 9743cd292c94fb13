package kubernetes

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// setCapacity sets the configured capacity, before the remote cluster is asked.
func (p *Provider) setCapacity(n *corev1.Node) {
	capacity := maps.Clone(p.cfg.Capacity.Resources)
	n.Status.Capacity, n.Status.Allocatable = capacity, maps.Clone(capacity)
}

// Ping implements node.NodeProvider. The node is healthy while the remote API server is
// ready and the pods can be listed or watched, it is the cluster that has the pods of this
// node, and it has no objects of another home cluster with the same names. With keepReady it stays healthy for a while in an
// outage: see outage.
func (p *Provider) Ping(ctx context.Context) error {
	keepReady := p.cfg.Unreachable.KeepReady.Duration
	if keepReady == 0 {
		return p.ping(ctx)
	}
	timed, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok { // the answer has to come before the deadline, even if there is none from the remote cluster
		timed, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
	}
	defer cancel()
	return p.outage.observe(p.ping(timed), keepReady)
}

func (p *Provider) ping(ctx context.Context) error {
	if p.identity.isKnown() { // otherwise the next call makes this check
		if err := p.checkRemoteCluster(ctx); err != nil {
			return err
		}
	}
	if err := p.ensureIdentified(ctx); err != nil {
		return err
	}
	p.recordRemoteCluster(ctx)
	if err := p.askReady(ctx); err != nil {
		return errdefs.AsUnavailable(remoteError("ask whether it is ready", err))
	}
	if err := p.listWatch.check(); err != nil {
		return errdefs.AsUnavailable(remoteError("list and watch the pods", err))
	}
	return nil
}

func (p *Provider) askReady(ctx context.Context) error {
	if p.service != nil { // the namespace is all that its tenants can ask for
		_, err := p.remote.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
		return err
	}
	return p.remote.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// NotifyNodeStatus implements node.NodeProvider. It reports changes of the capacity,
// and the taint of an outage, as configured.
func (p *Provider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	p.outage.setNotify(p.home.Node.Spec.Taints, notify)
	if p.cfg.Capacity.Source == CapacityFixed {
		return
	}
	n := p.home.Node.DeepCopy()
	n.Spec.Taints = nil // outage reports them
	run := log.WithLogger(p.ctx, log.G(ctx))
	p.running.Go(func() { p.watchCapacity(run, n, notify) })
}
