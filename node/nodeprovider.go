package node

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// NodeProvider is what a provider implements to have a say in the Node object.
type NodeProvider interface {
	// Ping reports whether the provider can run pods, at intervals. An error, or
	// no answer within the ping timeout, makes the node NotReady until a later
	// ping succeeds. It should end when ctx does.
	Ping(ctx context.Context) error

	// NotifyNodeStatus hands over the function to be called with the node when
	// something about it has changed. It is called once and must not block. The
	// function may be called until ctx ends, from any goroutine; it copies what
	// it needs. What the node does not mention stays as it is; labels,
	// annotations, capacity and allocatable of a node that has its name set are
	// taken as complete, so that the provider can take some back.
	NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node))
}

// NaiveNodeProvider is a NodeProvider that is always well and has nothing to
// say.
type NaiveNodeProvider struct{}

// Ping implements NodeProvider.
func (NaiveNodeProvider) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus implements NodeProvider.
func (NaiveNodeProvider) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}

// NaiveNodeProviderV2 is a NodeProvider that is always well, and whose node is
// changed from outside with UpdateStatus. Make one with NewNaiveNodeProvider.
type NaiveNodeProviderV2 struct {
	mu      sync.Mutex
	changed chan struct{} // closed when notify is set
	notify  func(*corev1.Node)
}

// NewNaiveNodeProvider makes a NaiveNodeProviderV2.
func NewNaiveNodeProvider() *NaiveNodeProviderV2 {
	return &NaiveNodeProviderV2{changed: make(chan struct{})}
}

// Ping implements NodeProvider.
func (*NaiveNodeProviderV2) Ping(ctx context.Context) error { return ctx.Err() }

// NotifyNodeStatus implements NodeProvider.
func (p *NaiveNodeProviderV2) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.notify == nil && p.changed != nil {
		close(p.changed)
	}
	p.notify = notify
}

// UpdateStatus has the node controller take over node. It waits until a
// controller runs, or ctx ends.
func (p *NaiveNodeProviderV2) UpdateStatus(ctx context.Context, node *corev1.Node) error {
	if p.changed == nil {
		return errors.New("this provider was not made with NewNaiveNodeProvider")
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.changed:
	}
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	notify(node)
	return nil
}

var (
	_ NodeProvider = NaiveNodeProvider{}
	_ NodeProvider = (*NaiveNodeProviderV2)(nil)
)
