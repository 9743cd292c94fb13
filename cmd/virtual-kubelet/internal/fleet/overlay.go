package fleet

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// overlaidProvider is a provider's node.NodeProvider whose reports have the overlay of
// the node's pool laid over them. The provider does not see the overlay, and so cannot
// undo a change of it by reporting what it was made with.
type overlaidProvider struct {
	node.NodeProvider

	mu       sync.Mutex
	overlay  nodepools.Overlay
	reported corev1.Node        // by the provider, of what a pool can set, too
	notify   func(*corev1.Node) // nil until the node runs
}

// wrap returns a function that makes the provider by newProvider, and lays the overlay
// over the node.
func (p *overlaidProvider) wrap(newProvider nodeutil.NewProviderFunc) nodeutil.NewProviderFunc {
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
		p.reported.Name = spec.Name
		p.keep(spec)
		p.overlay.LayOver(spec)
		return provider, p, nil
	}
}

// change replaces the overlay.
func (p *overlaidProvider) change(to nodepools.Overlay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.overlay = to
	if p.notify != nil {
		p.notify(p.overlaid(&corev1.Node{}))
	}
}

// NotifyNodeStatus implements node.NodeProvider.
func (p *overlaidProvider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	p.mu.Lock()
	p.notify = notify
	notify(p.overlaid(&corev1.Node{})) // it may have changed since the node was made
	p.mu.Unlock()
	p.NodeProvider.NotifyNodeStatus(ctx, func(report *corev1.Node) {
		if report == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.keep(report)
		notify(p.overlaid(report))
	})
}

// keep merges a report into what the provider has reported, by the rules of
// node.NodeProvider.
func (p *overlaidProvider) keep(report *corev1.Node) {
	complete := report.Name == p.reported.Name
	keepMap(&p.reported.Labels, report.Labels, complete)
	keepMap(&p.reported.Annotations, report.Annotations, complete)
	keepMap(&p.reported.Status.Capacity, report.Status.Capacity, complete)
	keepMap(&p.reported.Status.Allocatable, report.Status.Allocatable, complete)
	if report.Spec.Taints != nil {
		p.reported.Spec.Taints = append([]corev1.Taint{}, report.Spec.Taints...)
	}
}

func keepMap[M ~map[K]V, K comparable, V any](own *M, report M, complete bool) {
	if *own == nil || complete && report != nil {
		*own = make(M, len(report))
	}
	maps.Copy(*own, report)
}

// overlaid returns the report with all that was reported before, and the overlay.
// p.mu is held.
func (p *overlaidProvider) overlaid(report *corev1.Node) *corev1.Node {
	next := *report
	next.Name = p.reported.Name
	next.Labels, next.Annotations, next.Spec.Taints = p.reported.Labels, p.reported.Annotations, p.reported.Spec.Taints
	next.Status.Capacity, next.Status.Allocatable = p.reported.Status.Capacity, p.reported.Status.Allocatable
	p.overlay.LayOver(&next)
	return &next
}

var _ node.NodeProvider = (*overlaidProvider)(nil)
