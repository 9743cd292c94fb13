package node

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

type leaseConfig struct {
	client          coordinationv1client.LeaseInterface
	durationSeconds int32
	renewInterval   time.Duration
}

// nodeLease is the lease of a node, which is renewed whatever the provider's
// health: it says that this process lives, the Ready condition how the node is.
// It is for one caller at a time.
type nodeLease struct {
	leaseConfig
	node     string
	uid      func() types.UID // of the Node
	returned func()           // called when the API server is back

	latest  *coordinationv1.Lease // as the API has it; nil: it has to be read
	spread  bool                  // the renewals have been spread over the interval
	away    bool                  // the API server, as far as the lease can tell
	backoff wait.Backoff
}

func (n *NodeController) newLease() *nodeLease {
	return &nodeLease{
		leaseConfig: *n.lease,
		node:        n.name,
		uid:         func() types.UID { uid, _ := n.uid.Load().(types.UID); return uid },
		returned:    n.noteReturn,
		backoff:     leaseBackoff(),
	}
}

// leaseBackoff is how a renewal that failed is repeated: at most 7 s apart, so
// that a lease of 40 s survives that, and at random, so that many nodes do not
// come together upon an API server that is back.
func leaseBackoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 4500 * time.Millisecond}
}

// renew renews the lease, or makes it, and returns when that is due next.
func (l *nodeLease) renew(ctx context.Context) (next time.Duration) {
	err := l.write(ctx)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody else has changed or deleted it
		err = l.write(ctx)
	}
	if err != nil {
		return l.failed(ctx, err)
	}
	l.backoff = leaseBackoff()
	if l.away {
		l.away = false
		l.returned()
	}
	if !l.spread { // nodes that were started together are not to renew together
		l.spread = true
		return rand.N(l.renewInterval)
	}
	return wait.Jitter(l.renewInterval, 0.04)
}

func (l *nodeLease) failed(ctx context.Context, err error) (next time.Duration) {
	next = l.backoff.Step()
	logger := log.G(ctx).WithError(err).WithField("delay", next.String())
	switch {
	case ctx.Err() != nil:
	case l.away:
		logger.Debug("Cannot renew the lease of the node yet")
	default:
		logger.Warn("Cannot renew the lease of the node; will try again until it works")
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		l.away = true
	}
	return next
}

// write writes the lease once. As a rule nobody else does, so that it is not
// read before; it is after an error.
func (l *nodeLease) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.renewInterval)
	defer cancel()
	if l.latest == nil {
		lease, err := l.client.Get(ctx, l.node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return l.take(l.client.Create(ctx, l.renewed(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: l.node, Namespace: corev1.NamespaceNodeLease},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(l.node)},
			}), metav1.CreateOptions{}))
		}
		if err != nil {
			return err
		}
		l.latest = lease
	}
	return l.take(l.client.Update(ctx, l.renewed(l.latest), metav1.UpdateOptions{}))
}

// take takes the API's answer for what it has.
func (l *nodeLease) take(lease *coordinationv1.Lease, err error) error {
	if err != nil {
		l.latest = nil
		return err
	}
	lease.ManagedFields = nil // the API server has them, and they are most of the lease
	l.latest = lease
	return nil
}

// renewed returns the lease as it is to be written. It goes with its Node.
func (l *nodeLease) renewed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	next := *lease
	next.Spec.LeaseDurationSeconds = ptr.To(l.durationSeconds)
	next.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	next.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(),
		Kind:       "Node",
		Name:       l.node,
		UID:        l.uid(),
	}}
	return &next
}

// noteReturn has the node looked at, since the control plane may have given it
// up while the API server was away.
func (n *NodeController) noteReturn() {
	select {
	case n.returned <- struct{}{}:
	default: // it is about to be
	}
}
