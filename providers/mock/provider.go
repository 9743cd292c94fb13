package mock

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Interfaces of the library that the provider implements. That it is a
// nodeutil.Provider too is checked in the tests.
var (
	_ node.PodLifecycleHandler = (*Provider)(nil)
	_ node.PodNotifier         = (*Provider)(nil)
	_ node.NodeProvider        = (*Provider)(nil)
)

// Provider pretends to run pods. Make one with New. It is safe for concurrent
// use.
type Provider struct {
	cfg     Config
	started time.Time
	journal *journal

	done chan struct{} // closed by Close
	wg   sync.WaitGroup

	mu          sync.RWMutex
	closed      bool
	pods        map[types.NamespacedName]*held
	addresses   *addresses
	failed      map[types.UID]int // how often CreatePod failed on demand
	subscribers []*subscriber
	nodes       map[int]func(*corev1.Node)
	nodesSeq    int
	pingErr     error
	pastCPU     uint64 // core nanoseconds of the containers that have ended
}

// Option is an option of New.
type Option func(*Provider)

// New makes a provider. Close ends it.
func New(cfg Config, opts ...Option) (*Provider, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, inConfig(cfg.NodeName, err)
	}
	prefix, err := netip.ParsePrefix(cfg.PodCIDR)
	if err != nil {
		return nil, inConfig(cfg.NodeName, err)
	}
	p := &Provider{
		cfg:       cfg,
		started:   time.Now(),
		done:      make(chan struct{}),
		pods:      map[types.NamespacedName]*held{},
		addresses: newAddresses(prefix),
		failed:    map[types.UID]int{},
		nodes:     map[int]func(*corev1.Node){},
	}
	for _, o := range opts {
		o(p)
	}
	if err := p.replay(); err != nil {
		return nil, err
	}
	return p, nil
}

// Close stops all timers, notifications and logs that are followed. Pods stay as
// they are, and can still be read. It waits for the notification under way, so
// it must not be called by a function that NotifyPods was given.
func (p *Provider) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
		for _, h := range p.pods {
			if h.timer != nil {
				h.timer.Stop()
			}
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	return nil
}

var errClosed = errdefs.AsUnavailable(errors.New("the mock provider is closed"))

// NotifyPods implements node.PodNotifier. Each call adds a receiver. What is
// behind the pointers of the pods that it gets is for reading only. They have the
// status, the labels and annotations, and of the spec the node, the restart policy and the
// containers' names, images and resources: GetPod has all of it.
func (p *Provider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	s := newSubscriber(ctx, notify)
	p.subscribers = append(p.subscribers, s)
	context.AfterFunc(ctx, func() { p.unsubscribe(s) })
}

// notify notifies all subscribers of a pod. p.mu is held.
func (p *Provider) notify(h *held) {
	for _, s := range p.subscribers { // each has a pod of its own
		if s.add(h.brief(p.cfg.HostIP)) && !p.closed {
			p.wg.Go(func() { s.deliver(p.done) })
		}
	}
}

func (p *Provider) unsubscribe(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.subscribers {
		if other == s {
			p.subscribers = append(p.subscribers[:i:i], p.subscribers[i+1:]...)
			return
		}
	}
}
