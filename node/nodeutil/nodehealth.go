package nodeutil

import (
	"context"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// nodeHealth records the last renewed lease and answered ping of a node, for its
// readiness checks.
type nodeHealth struct {
	ping    atomic.Pointer[pingAnswer]
	renewed atomic.Pointer[time.Time] // the lease
	leased  bool                      // there is to be a lease; set before the node runs

	registered <-chan struct{} // closed when the node is; set before the node runs
}

type pingAnswer struct {
	at  time.Time
	err error
}

// ready reports whether the node has registered, its provider is well and its lease
// renewed.
func (v *nodeHealth) ready() bool { return v.failing() == "" }

// failing is the name of the first of these checks that fails; empty if none does.
func (v *nodeHealth) failing() string {
	switch {
	case v.checkRegistered() != nil:
		return "node"
	case v.checkPing() != nil:
		return "provider"
	case v.checkLease() != nil:
		return "lease"
	}
	return ""
}

// leaseAge is the time since the lease was renewed; zero while there is none.
func (v *nodeHealth) leaseAge() time.Duration {
	renewed := v.renewed.Load()
	if renewed == nil {
		return 0
	}
	return time.Since(*renewed)
}

// ofPings returns p with the answers to its pings recorded.
func (v *nodeHealth) ofPings(p node.NodeProvider) node.NodeProvider { return &recordingPings{p, v} }

type recordingPings struct {
	node.NodeProvider
	health *nodeHealth
}

func (p *recordingPings) Ping(ctx context.Context) error {
	err := p.NodeProvider.Ping(ctx)
	p.health.ping.Store(&pingAnswer{time.Now(), err})
	return err
}

// ofLease returns leases with their renewals recorded.
func (v *nodeHealth) ofLease(leases coordinationv1client.LeaseInterface) coordinationv1client.LeaseInterface {
	v.leased = true
	return &recordingLease{leases, v}
}

type recordingLease struct {
	coordinationv1client.LeaseInterface
	health *nodeHealth
}

func (l *recordingLease) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Create(ctx, lease, opts)
	l.record(err)
	return lease, err
}

func (l *recordingLease) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Update(ctx, lease, opts)
	l.record(err)
	return lease, err
}

func (l *recordingLease) record(err error) {
	if err == nil {
		now := time.Now()
		l.health.renewed.Store(&now)
	}
}
