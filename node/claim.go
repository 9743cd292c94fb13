package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// ErrNodeTaken is what a NodeController's Run returns when another process has
// taken the node: its lease carries the identity of that process. This process
// must not act for the node any more.
var ErrNodeTaken = errors.New("another process has taken the node")

// Identity distinguishes a process from all others that may act for the same node.
type Identity struct {
	// ID is the identity itself, which no other process has, nor this one after a
	// restart. Required.
	ID string

	// Group is common to the processes that agree by other means on which of them
	// acts, such as an election: one of them takes the node from another at once.
	// Empty means that there are no others.
	Group string

	// Ended reports whether the process with that ID is known to have ended, so
	// that its lease need not run out before the node is taken. It returns false
	// where it cannot know. Nil means that it never can.
	Ended func(id string) bool
}

// ClaimConfig configures a Claim.
type ClaimConfig struct {
	// Node is the name of the node. Required.
	Node string
	// Nodes reads the Node, and writes its adoption. Required.
	Nodes corev1client.NodeInterface

	// Leases has the node's lease, by which processes see each other. Nil means
	// that there is no lease, and so no protection against a second process.
	Leases coordinationv1client.LeaseInterface
	// Identity is that of this process. Required if Leases is set.
	Identity Identity

	// Provider is the name of the provider that runs the node's pods. A Node that
	// has another name in LabelProvider is refused, and so is one that no virtual
	// kubelet made. Empty means that every Node will do.
	Provider string
	// Adopt accepts those Nodes, too. What runs there of another provider is left
	// alone: see LeftAlone. A pod that it has begun, but has written no status of yet, looks
	// like one that waits, and is begun again: adopt a Node on which none is about to start.
	Adopt bool
	// Pods lists the pods that are bound to the node, as the API server has them.
	// Required if Adopt is set.
	Pods func(ctx context.Context) ([]corev1.Pod, error)
}

// Claim is the claim of one process to act for a node. While one has it no other
// process that asks for one does, as far as leases can promise that. Make it with
// NewClaim, and give it to a NodeController with WithNodeClaim. What acts for the
// node beside that controller, such as a PodController, begins after Acquire has
// returned and ends before Release is called.
type Claim struct {
	cfg ClaimConfig

	acquired atomic.Bool
	signs    atomic.Bool // the lease may have this process's identity
	renewals renewals
	found    atomic.Pointer[foundNode]
	lease    atomic.Pointer[coordinationv1.Lease] // as it was written
	left     atomic.Pointer[leftAlone]
	waiting  atomic.Pointer[error] // what Acquire waits for; nil if for nothing
	rivals   atomic.Int64          // seen before there were metrics
	metrics  atomic.Pointer[Metrics]
}

// NewClaim makes a Claim. An error of class InvalidInput says what is missing.
func NewClaim(cfg ClaimConfig) (*Claim, error) {
	switch {
	case cfg.Node == "" || cfg.Nodes == nil:
		return nil, errdefs.InvalidInput("a claim needs the name of its node, and a client for it: set Node and Nodes")
	case cfg.Leases != nil && cfg.Identity.ID == "":
		return nil, errdefs.InvalidInputf("the claim to node %s has no identity to write into the lease: set Identity.ID", cfg.Node)
	case cfg.Adopt && cfg.Pods == nil:
		return nil, errdefs.InvalidInputf("the claim to node %s cannot see which pods another provider runs there: set Pods", cfg.Node)
	}
	return &Claim{cfg: cfg}, nil
}

// Acquire waits until this process may act for the node, or ctx ends: until no
// other process acts for it, by its lease, and the API server has answered. It
// retries for ever, but for a Node that is refused: that error has class Conflict,
// and says what to do. Once it has returned nil it does so at once, unless the lease
// was not renewed for a while since then: another process may have taken it. It is for
// one caller at a time.
func (c *Claim) Acquire(ctx context.Context) error {
	return c.acquire(ctx, false, func(context.Context) (func(), error) { return func() {}, nil })
}

// acquire is Acquire. If patient, a Node that is refused is looked at again each
// minute. Each attempt takes a slot.
func (c *Claim) acquire(ctx context.Context, patient bool, slot slotFunc) error {
	if c.acquired.Load() && (c.cfg.Leases == nil || c.renewals.within(claimFresh)) {
		return nil
	}
	c.acquired.Store(false)
	defer c.waiting.Store(nil)
	var logged string
	var seen rival
	backoff := periodic.Backoff(registrationRetry)
	for {
		delay, err := c.attempt(ctx, slot, &seen)
		switch {
		case err == nil && delay == 0:
			c.acquired.Store(true)
			return nil
		case errors.Is(err, ErrNodeRefused) && !patient:
			return err
		case errors.Is(err, ErrNodeRefused):
			delay = wait.Jitter(refusedDelay, 0.2)
		case err != nil:
			err = explainClaim(err)
			delay = backoff.Step()
		default:
			err = c.contended(ctx, &seen)
		}
		c.waiting.Store(&err)
		if text := err.Error(); text != logged && !errors.Is(err, ErrNodeHeld) && ctx.Err() == nil {
			logged = text
			logClaim(ctx, err, delay)
		}
		if ended := periodic.Sleep(ctx, delay); ended != nil {
			return fmt.Errorf("stopped before node %s could be claimed: %w", c.cfg.Node, err)
		}
	}
}

// attempt tries to acquire the claim once. Without an error and with a delay
// another process has the node.
func (c *Claim) attempt(ctx context.Context, slot slotFunc, seen *rival) (delay time.Duration, err error) {
	done, err := slot(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	began := time.Now()
	found, err := c.cfg.Nodes.Get(ctx, c.cfg.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.found.Store(&foundNode{at: began})
		found = &corev1.Node{}
	case err != nil:
		return 0, fmt.Errorf("read node %s: %w", c.cfg.Node, err)
	default:
		if err := c.check(found); err != nil {
			return 0, err
		}
		c.found.Store(&foundNode{found, began})
	}
	if c.cfg.Leases != nil {
		if delay, err := c.takeLease(ctx, found, seen); err != nil || delay > 0 {
			return delay, err
		}
	}
	return 0, c.adopt(ctx, found)
}

// Acquired reports whether Acquire has returned nil, and neither Release nor another Acquire
// was called since. A nil Claim always is.
func (c *Claim) Acquired() bool { return c == nil || c.acquired.Load() }

// Waiting returns what Acquire waits for at the moment, as an error, and nil if it
// does not wait.
func (c *Claim) Waiting() error {
	if err := c.waiting.Load(); err != nil {
		return *err
	}
	return nil
}

// claimPoll is how often the lease of another process is looked at.
const claimPoll = 2 * time.Second

// ErrNodeHeld is what Acquire waits for while another process has the node: see
// Waiting.
var ErrNodeHeld = errors.New("another process acts for the node")

// claimFresh is for how long nobody has to look again at a lease that was renewed.
const claimFresh = 10 * time.Second

// rival is another process as its lease shows it.
type rival struct {
	holder  string // empty: not known, as the lease is missing
	renewed metav1.MicroTime
	since   time.Time // when it was first seen to be so
	lasts   time.Duration
	logged  string // the holder that was logged last
}

// contended reports another process, once, and returns the error that describes it.
func (c *Claim) contended(ctx context.Context, seen *rival) error {
	if seen.holder == "" {
		return fmt.Errorf("node %s has no lease, but its Node is not marked as stopped: another process may act for it, and make the lease again within %v", c.cfg.Node, seen.lasts)
	}
	if seen.logged != seen.holder {
		seen.logged = seen.holder
		c.count()
		log.G(ctx).WithFields(log.Fields{"holder": seen.holder, "leaseDuration": DefaultLeaseDuration}).
			Warn("Another process acts for this node; waiting until it has ended, or has not renewed the node's lease for its duration (two processes need two node names; for a rolling update use --leader-elect, or the strategy Recreate)")
	}
	return fmt.Errorf("%w: %s renews its lease", ErrNodeHeld, seen.holder)
}

// count counts a rival.
func (c *Claim) count() {
	if m := c.metrics.Load(); m != nil {
		m.calls().RivalsSeen(1)
		return
	}
	c.rivals.Add(1)
}

// measure has rivals counted in m.
func (c *Claim) measure(m *Metrics) {
	if m != nil {
		m.calls().RivalsSeen(c.rivals.Swap(0))
		c.metrics.Store(m)
	}
}

// The annotations of a lease by which processes know each other. Its
// holderIdentity is the name of the node, as a kubelet's.
const (
	annotationHolder      = "virtual-kubelet.io/holder"
	annotationHolderGroup = "virtual-kubelet.io/holder-group"
)

// takeLease writes this process's identity into the node's lease, unless another
// process has it: then it returns when to look again. Clocks are not compared:
// what counts is for how long the lease was seen not to change.
func (c *Claim) takeLease(ctx context.Context, found *corev1.Node, seen *rival) (delay time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	began := time.Now()
	lease, err := c.cfg.Leases.Get(ctx, c.cfg.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if c.outlives(seen, found, began) {
			return claimPoll, nil // somebody has deleted the lease: who had it makes it again
		}
		c.signs.Store(true)
		lease = newLease(c.cfg.Node, found.UID)
		lease, err = c.cfg.Leases.Create(ctx, c.claimed(lease), metav1.CreateOptions{})
	} else if err == nil {
		if !c.free(lease, seen, time.Now()) {
			return claimPoll, nil
		}
		c.signs.Store(true)
		lease, err = c.cfg.Leases.Update(ctx, c.claimed(lease), metav1.UpdateOptions{})
	}
	if err != nil {
		return 0, fmt.Errorf("claim node %s by its lease: %w", c.cfg.Node, err)
	}
	c.lease.Store(lease)
	c.renewals.renewed(began)
	return 0, nil
}

// claimTimeout bounds an attempt to take the lease.
const claimTimeout = 10 * time.Second

// free reports whether this process may take the lease.
func (c *Claim) free(lease *coordinationv1.Lease, seen *rival, now time.Time) bool {
	holder, us := lease.Annotations[annotationHolder], c.cfg.Identity
	group := lease.Annotations[annotationHolderGroup]
	if holder == "" || holder == us.ID || group != "" && group == us.Group || us.Ended != nil && us.Ended(holder) {
		return true
	}
	var renewed metav1.MicroTime
	if lease.Spec.RenewTime != nil {
		renewed = *lease.Spec.RenewTime
	}
	if seen.holder != holder || !seen.renewed.Equal(&renewed) {
		seen.holder, seen.renewed, seen.since = holder, renewed, now
		seconds := int32(DefaultLeaseDuration)
		if lease.Spec.LeaseDurationSeconds != nil {
			seconds = cmp.Or(max(*lease.Spec.LeaseDurationSeconds, 0), seconds)
		}
		seen.lasts = time.Duration(seconds) * time.Second
		return false
	}
	return now.Sub(seen.since) >= seen.lasts
}

// outlives reports whether the process that had a lease which is missing may act still.
// Where it was not seen, the Node says whether there may be one, and the lease lasts from
// when it was first missed.
func (c *Claim) outlives(seen *rival, found *corev1.Node, now time.Time) bool {
	if seen.holder == "" {
		if !kept(found) {
			return false
		}
		if seen.since.IsZero() {
			seen.since, seen.lasts = now, DefaultLeaseDuration*time.Second
		}
	}
	ended := c.cfg.Identity.Ended
	return now.Sub(seen.since) < seen.lasts && (seen.holder == "" || ended == nil || !ended(seen.holder))
}

// kept reports whether some process may keep the Node, by its Ready condition: there is
// none before the first process, and the last one, or the control plane, may have written
// that there is none any more.
func kept(n *corev1.Node) bool {
	c := readyCondition(n)
	return c.Status == corev1.ConditionTrue || c.Status == corev1.ConditionFalse && c.Reason != nodeStoppedReason
}

// claimed returns the lease with the identity of this process, renewed.
func (c *Claim) claimed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	next := lease.DeepCopy()
	c.sign(next)
	now := metav1.NowMicro()
	next.Spec.RenewTime = &now
	return next
}

// sign writes the identity of this process into a lease, whose annotations the
// caller owns.
func (c *Claim) sign(lease *coordinationv1.Lease) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[annotationHolder] = c.cfg.Identity.ID
	delete(lease.Annotations, annotationHolderGroup)
	if c.cfg.Identity.Group != "" {
		lease.Annotations[annotationHolderGroup] = c.cfg.Identity.Group
	}
}

// signed reports whether a lease has the identity of this process.
func (c *Claim) signed(lease *coordinationv1.Lease) bool {
	return lease.Annotations[annotationHolder] == c.cfg.Identity.ID
}

// Release gives the node back, so that another process need not wait for its lease
// to run out; the Node stays as it is. It is for an Acquire that has failed, too, which
// may have written the lease before. Where the cause of ctx's end is ErrHandedOver
// it does nothing, since the other process takes the node anyway. ctx may have
// ended; the requests take five seconds at most, and a failure is logged.
func (c *Claim) Release(ctx context.Context) {
	c.acquired.Store(false)
	if !c.signs.Swap(false) || errors.Is(context.Cause(ctx), ErrHandedOver) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTimeout)
	defer cancel()
	lease, err := c.cfg.Leases.Get(ctx, c.cfg.Node, metav1.GetOptions{})
	if err == nil && c.signed(lease) {
		next := lease.DeepCopy()
		delete(next.Annotations, annotationHolder)
		delete(next.Annotations, annotationHolderGroup)
		_, err = c.cfg.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		log.G(ctx).WithError(err).Warn("Cannot give the node back; the next process waits until the lease has run out")
	}
}

// slotFunc waits for the right to make an attempt; done gives it back.
type slotFunc func(ctx context.Context) (done func(), err error)
