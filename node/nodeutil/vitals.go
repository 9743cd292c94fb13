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

// vitals are the last signs of life of a node, for its readiness checks.
type vitals struct {
	ping    atomic.Pointer[pingAnswer]
	renewed atomic.Pointer[time.Time] // the lease
	leased  bool                      // there is to be a lease; set before the node runs

	registered <-chan struct{} // closed when the node is; set before the node runs
}

type pingAnswer struct {
	at  time.Time
	err error
}

// ready tells whether the node has registered, its provider is well and its lease
// renewed.
func (v *vitals) ready() bool {
	return v.checkRegistered() == nil && v.checkPing() == nil && v.checkLease() == nil
}

// leaseAge is the time since the lease was renewed; zero while there is none.
func (v *vitals) leaseAge() time.Duration {
	renewed := v.renewed.Load()
	if renewed == nil {
		return 0
	}
	return time.Since(*renewed)
}

// ofPings returns p with the answers to its pings noted.
func (v *vitals) ofPings(p node.NodeProvider) node.NodeProvider { return &notedPings{p, v} }

type notedPings struct {
	node.NodeProvider
	vitals *vitals
}

func (p *notedPings) Ping(ctx context.Context) error {
	err := p.NodeProvider.Ping(ctx)
	p.vitals.ping.Store(&pingAnswer{time.Now(), err})
	return err
}

// ofLease returns leases with their renewals noted.
func (v *vitals) ofLease(leases coordinationv1client.LeaseInterface) coordinationv1client.LeaseInterface {
	v.leased = true
	return &notedLease{leases, v}
}

type notedLease struct {
	coordinationv1client.LeaseInterface
	vitals *vitals
}

func (l *notedLease) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Create(ctx, lease, opts)
	l.note(err)
	return lease, err
}

func (l *notedLease) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Update(ctx, lease, opts)
	l.note(err)
	return lease, err
}

func (l *notedLease) note(err error) {
	if err == nil {
		now := time.Now()
		l.vitals.renewed.Store(&now)
	}
}
