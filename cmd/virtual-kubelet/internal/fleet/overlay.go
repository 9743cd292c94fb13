package fleet

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/resourcelist"
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
	reported reported           // by the provider
	notify   func(*corev1.Node) // nil until the node runs
}

// reported is what a provider has reported of what a pool can set, too. Its maps do not
// change, and capacity and allocatable are one map where they are equal.
type reported struct {
	name                  string
	labels, annotations   map[string]string
	taints                []corev1.Taint
	capacity, allocatable corev1.ResourceList
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
		p.reported.name = spec.Name
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
	known := &p.reported
	complete := report.Name == known.name
	known.labels = keepMap(known.labels, report.Labels, complete)
	known.annotations = keepMap(known.annotations, report.Annotations, complete)
	known.capacity = keepMap(known.capacity, report.Status.Capacity, complete)
	known.allocatable = keepMap(known.allocatable, report.Status.Allocatable, complete)
	if resourcelist.Same(known.capacity, known.allocatable) {
		known.allocatable = known.capacity
	}
	if report.Spec.Taints != nil {
		known.taints = append([]corev1.Taint{}, report.Spec.Taints...)
	}
}

// keepMap returns what a provider has reported, with a further report.
func keepMap[M ~map[K]V, K comparable, V any](own, report M, complete bool) M {
	if own != nil && report == nil {
		return own
	}
	next := make(M, len(report))
	if !complete {
		maps.Copy(next, own)
	}
	maps.Copy(next, report)
	return next
}

// overlaid returns the report with all that was reported before, and the overlay.
// p.mu is held.
func (p *overlaidProvider) overlaid(report *corev1.Node) *corev1.Node {
	next := *report
	next.Name = p.reported.name
	next.Labels, next.Annotations, next.Spec.Taints = p.reported.labels, p.reported.annotations, p.reported.taints
	next.Status.Capacity, next.Status.Allocatable = p.reported.capacity, p.reported.allocatable
	p.overlay.LayOver(&next)
	return &next
}

var _ node.NodeProvider = (*overlaidProvider)(nil)
