package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

type leaseConfig struct {
	client          coordinationv1client.LeaseInterface
	durationSeconds int32
	renewInterval   time.Duration
}

// nodeLease is the lease of a node, which is renewed regardless of the provider's
// health: it says that this process lives, the Ready condition how the node is.
// It is for one caller at a time.
type nodeLease struct {
	leaseConfig
	of *NodeController // for its name, claim and metrics, and to be notified

	written []metav1.MicroTime // renewals since the last that succeeded, with that one
	shared  bool               // another process was seen to renew the lease, too
	lost    bool               // another process has taken it

	latest  *coordinationv1.Lease // as the API has it; nil: it has to be read
	due     time.Time             // of the next renewal
	spread  bool                  // the renewals have been spread over the interval
	away    bool                  // the API server, as far as the lease can tell
	backoff wait.Backoff
}

func (n *NodeController) newLease() *nodeLease {
	l := &nodeLease{leaseConfig: *n.lease, of: n, backoff: periodic.Backoff(leaseRetry)}
	if n.claim != nil {
		n.claim.renewals.keep(time.Duration(n.lease.durationSeconds) * time.Second)
		l.goOn(n.claim.lease.Swap(nil))
	}
	return l
}

// goOn has the lease renewed from the claim's on, which was written a moment ago: neither is
// it read again, nor written before that is due.
func (l *nodeLease) goOn(claimed *coordinationv1.Lease) {
	if claimed == nil || claimed.Spec.RenewTime == nil || ptr.Deref(claimed.Spec.LeaseDurationSeconds, 0) != l.durationSeconds {
		return
	}
	claimed.ManagedFields = nil // the API server has them, and they are most of the lease
	l.latest, l.written = claimed, []metav1.MicroTime{*claimed.Spec.RenewTime}
	l.due, l.spread = l.of.claim.renewals.nextAfter(rand.N(l.renewInterval)), true
}

// leaseRetry is the longest delay before a failed renewal is repeated, which a lease of
// 40 s survives.
const leaseRetry = 7 * time.Second

// renew renews the lease, or makes it, if that is due, or the lease would stay when the
// Node goes. It returns when it is due next.
func (l *nodeLease) renew(ctx context.Context) (next time.Duration) {
	early := time.Until(l.due)
	if early > 0 && l.owned() {
		return early
	}
	next = l.renewNow(ctx)
	if early > 0 {
		next = min(next, early) // renewals of many nodes stay spread
	}
	l.due = time.Now().Add(next)
	return next
}

// owned reports whether the lease goes with the Node that was registered last.
func (l *nodeLease) owned() bool {
	uid := l.of.UID()
	return uid == "" || l.latest != nil && slices.ContainsFunc(l.latest.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// renewNow renews the lease, or makes it, and returns when that is due next.
func (l *nodeLease) renewNow(ctx context.Context) (next time.Duration) {
	if l.lost {
		return l.renewInterval // this process ends
	}
	err := l.write(ctx)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody else has changed or deleted it
		err = l.write(ctx)
	}
	if l.of.claim != nil {
		l.of.claim.renewals.tried(err)
	}
	if errors.Is(err, ErrNodeTaken) {
		l.lost = true
		l.of.metrics.calls().RivalsSeen(1)
		l.of.leaseTaken()
		return l.renewInterval
	}
	if err != nil {
		return l.failed(ctx, err)
	}
	l.backoff = periodic.Backoff(leaseRetry)
	if l.away {
		l.away = false
		l.of.leaseReturned()
	}
	if !l.spread { // nodes that were started together are not to renew together
		l.spread = true
		return rand.N(l.renewInterval)
	}
	return wait.Jitter(l.renewInterval, min(0.04, float64(l.attempt())/float64(l.renewInterval)))
}

// attempt is how long a renewal may take: a slow one, the interval after it, prolonged by as much at most, and
// a further one that fails end before the lease would have run out. Else its failure would look like that of a
// process that has stood still.
func (l *nodeLease) attempt() time.Duration {
	return min(l.renewInterval, (time.Duration(l.durationSeconds)*time.Second-l.renewInterval)/3)
}

func (l *nodeLease) failed(ctx context.Context, err error) (next time.Duration) {
	next = min(l.backoff.Step(), l.renewInterval) // that of a short lease is less than leaseRetry
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
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.attempt())
	defer cancel()
	if l.latest == nil {
		lease, err := l.client.Get(ctx, l.of.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return l.take(began)(l.client.Create(ctx, l.renewed(newLease(l.of.name, "")), metav1.CreateOptions{}))
		}
		if err != nil {
			return err
		}
		if err := l.inspect(ctx, lease); err != nil {
			return err
		}
		l.latest = lease
	}
	return l.take(began)(l.client.Update(ctx, l.renewed(l.latest), metav1.UpdateOptions{}))
}

// take takes the API's answer to a renewal that began at a time for what it has.
func (l *nodeLease) take(began time.Time) func(*coordinationv1.Lease, error) error {
	return func(lease *coordinationv1.Lease, err error) error {
		if err != nil {
			l.latest = nil
			return err
		}
		lease.ManagedFields = nil // the API server has them, and they are most of the lease
		l.latest = lease
		l.written = l.written[len(l.written)-1:]
		if l.of.claim != nil {
			l.of.claim.renewals.renewed(began)
		}
		return nil
	}
}

// inspect looks for another process in the lease as it was read, which is after an
// error, or at the start.
func (l *nodeLease) inspect(ctx context.Context, lease *coordinationv1.Lease) error {
	if holder := lease.Annotations[annotationHolder]; l.of.claim != nil && holder != "" && !l.of.claim.signed(lease) {
		return fmt.Errorf("%w: its lease is held by %s", ErrNodeTaken, holder)
	}
	renewed := lease.Spec.RenewTime
	ours := renewed == nil || len(l.written) == 0 || slices.ContainsFunc(l.written, func(t metav1.MicroTime) bool { return renewed.Equal(&t) })
	if !ours && !l.shared {
		l.shared = true
		l.of.metrics.calls().RivalsSeen(1)
		log.G(ctx).Warn("Another process renews the lease of this node, too: two processes need two node names, or an election between them")
	}
	return nil
}

// maxWritten bounds how many renewals are remembered while none succeeds.
const maxWritten = 16

// renewed returns the lease as it is to be written. It goes with its Node.
func (l *nodeLease) renewed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	next := *lease
	next.Spec.LeaseDurationSeconds = ptr.To(l.durationSeconds)
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)) // as the API keeps it
	next.Spec.RenewTime = &now
	if len(l.written) == maxWritten { // only the last can still arrive
		l.written = slices.Delete(l.written, 1, 2)
	}
	l.written = append(l.written, now)
	if uid := l.of.UID(); uid != "" {
		next.OwnerReferences = ownedByNode(l.of.name, uid)
	} // else it may have its owner already
	if l.of.claim != nil {
		next.Annotations = maps.Clone(lease.Annotations)
		l.of.claim.sign(&next)
	}
	return &next
}

// newLease is the lease of a node that has none.
func newLease(node string, uid types.UID) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: corev1.NamespaceNodeLease, OwnerReferences: ownedByNode(node, uid)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node), LeaseDurationSeconds: ptr.To[int32](DefaultLeaseDuration)},
	}
}

// ownedByNode has the garbage collector delete a lease after its Node; nil as long
// as there is none.
func ownedByNode(node string, uid types.UID) []metav1.OwnerReference {
	if uid == "" {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(),
		Kind:       "Node",
		Name:       node,
		UID:        uid,
	}}
}

// leaseTaken has the controller end, since another process has the node.
func (n *NodeController) leaseTaken() { n.abort(fmt.Errorf("node %s: %w", n.name, ErrNodeTaken)) }

// leaseReturned has the node looked at, since the control plane may have given it
// up while the API server was away.
func (n *NodeController) leaseReturned() {
	select {
	case n.returned <- struct{}{}:
	default: // it is about to be
	}
}
