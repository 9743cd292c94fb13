package main

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// poolNode is a provider's say in its node, with what the node's pool says laid
// over it. The provider does not get to see that, and so cannot undo a change of
// it by saying again what it knows.
type poolNode struct {
	node.NodeProvider

	mu      sync.Mutex
	overlay nodepools.Overlay
	own     corev1.Node        // what the provider says, as far as a pool can say it, too
	notify  func(*corev1.Node) // nil until the node runs
}

// making makes the provider, and has what it says of the node go together with
// the overlay.
func (p *poolNode) making(newProvider nodeutil.NewProviderFunc) nodeutil.NewProviderFunc {
	return func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		spec := cfg.Node
		cfg.Node = spec.DeepCopy() // which the provider may change and keep
		provider, nodeProvider, err := newProvider(cfg)
		if err != nil {
			return nil, nil, err
		}
		p.NodeProvider = nodeProvider
		if nodeProvider == nil {
			p.NodeProvider = node.NaiveNodeProvider{}
		}
		*spec = *cfg.Node.DeepCopy()
		p.own.Name = spec.Name
		p.keep(spec)
		p.overlay.LayOver(spec)
		return provider, p, nil
	}
}

// change has the pool say something else.
func (p *poolNode) change(to nodepools.Overlay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.overlay = to
	if p.notify != nil {
		p.notify(p.overlaid(&corev1.Node{}))
	}
}

// NotifyNodeStatus implements node.NodeProvider.
func (p *poolNode) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	p.mu.Lock()
	p.notify = notify
	notify(p.overlaid(&corev1.Node{})) // it may have changed since the node was made
	p.mu.Unlock()
	p.NodeProvider.NotifyNodeStatus(ctx, func(said *corev1.Node) {
		if said == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.keep(said)
		notify(p.overlaid(said))
	})
}

// keep notes what the provider says, by the rules of node.NodeProvider.
func (p *poolNode) keep(said *corev1.Node) {
	complete := said.Name == p.own.Name
	keepMap(&p.own.Labels, said.Labels, complete)
	keepMap(&p.own.Annotations, said.Annotations, complete)
	keepMap(&p.own.Status.Capacity, said.Status.Capacity, complete)
	keepMap(&p.own.Status.Allocatable, said.Status.Allocatable, complete)
	if said.Spec.Taints != nil {
		p.own.Spec.Taints = append([]corev1.Taint{}, said.Spec.Taints...)
	}
}

func keepMap[M ~map[K]V, K comparable, V any](own *M, said M, complete bool) {
	if *own == nil || complete && said != nil {
		*own = make(M, len(said))
	}
	maps.Copy(*own, said)
}

// overlaid is what the provider says now, with all that it has said before and
// the overlay. p.mu is held.
func (p *poolNode) overlaid(said *corev1.Node) *corev1.Node {
	next := *said
	next.Name = p.own.Name
	next.Labels, next.Annotations, next.Spec.Taints = p.own.Labels, p.own.Annotations, p.own.Spec.Taints
	next.Status.Capacity, next.Status.Allocatable = p.own.Status.Capacity, p.own.Status.Allocatable
	p.overlay.LayOver(&next)
	return &next
}

var _ node.NodeProvider = (*poolNode)(nil)
