package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// DefaultPingInterval is how often the provider is pinged, and how often
	// the node's status is written where there is no lease.
	DefaultPingInterval = 10 * time.Second

	// DefaultStatusUpdateInterval is how often the node's status is compared
	// with what the API has, where there is a lease. It is written only if it
	// differs, or was not written for five minutes.
	DefaultStatusUpdateInterval = time.Minute

	// DefaultLeaseDuration is the life of a lease in seconds, as the kubelet's.
	DefaultLeaseDuration = 40

	// DefaultRenewIntervalFraction is the part of its life after which a lease
	// is renewed.
	DefaultRenewIntervalFraction = 0.25
)

// ErrConflictingLeaseControllerConfiguration is what NewNodeController returns
// if more than one of the lease options is given.
var ErrConflictingLeaseControllerConfiguration = errors.New("more than one of the lease options was given to the node controller: keep one of them")

// NodeControllerOpt configures a NodeController.
type NodeControllerOpt func(*NodeController) error

// ErrorHandler gets the error of a status update that failed. If it returns nil,
// having removed the cause, the update is tried once more at once; else the
// error it returns is logged, and the update is tried at the next interval. A Node that was
// deleted is not made again unless the handler does so.
type ErrorHandler func(ctx context.Context, err error) error

// WithNodeMetrics has the calls of the provider measured.
func WithNodeMetrics(metrics *Metrics) NodeControllerOpt {
	return func(n *NodeController) error {
		n.metrics = metrics
		return nil
	}
}

// WithNodeRegistrationAfter has the Node registered only once the channel that begun
// returns is closed, such as PodController.Ready: a node takes pods when somebody is
// there to see them. With WithNodeClaim the lease is renewed from the beginning, so that
// no other process takes the node meanwhile. begun is called once, by Run.
func WithNodeRegistrationAfter(begun func() <-chan struct{}) NodeControllerOpt {
	return func(n *NodeController) error {
		n.after = begun
		return nil
	}
}

// WithNodeEnableLeaseV1 keeps the node alive by a Lease of the given duration
// (zero or less means DefaultLeaseDuration), renewed each quarter of it.
func WithNodeEnableLeaseV1(client coordinationv1.LeaseInterface, leaseDurationSeconds int32) NodeControllerOpt {
	if leaseDurationSeconds <= 0 {
		leaseDurationSeconds = DefaultLeaseDuration
	}
	interval := time.Duration(float64(leaseDurationSeconds) * DefaultRenewIntervalFraction * float64(time.Second))
	return WithNodeEnableLeaseV1WithRenewInterval(client, leaseDurationSeconds, interval)
}

// WithNodeEnableLeaseV1WithRenewInterval is WithNodeEnableLeaseV1 with the
// interval of the renewals given; it has to be shorter than the duration.
func WithNodeEnableLeaseV1WithRenewInterval(client coordinationv1.LeaseInterface, leaseDurationSeconds int32, interval time.Duration) NodeControllerOpt {
	return func(n *NodeController) error {
		switch {
		case n.lease != nil:
			return ErrConflictingLeaseControllerConfiguration
		case client == nil:
			return errdefs.InvalidInput("the lease option was given no client: pass one, or leave the option out to live without leases")
		case leaseDurationSeconds <= 0:
			return errdefs.InvalidInputf("a lease duration of %d seconds is not possible: it must be positive", leaseDurationSeconds)
		case interval <= 0 || interval >= time.Duration(leaseDurationSeconds)*time.Second:
			return errdefs.InvalidInputf("a lease of %d s cannot be renewed every %v: the interval must be positive and shorter", leaseDurationSeconds, interval)
		}
		n.lease = &leaseConfig{client: client, durationSeconds: leaseDurationSeconds, renewInterval: interval}
		return nil
	}
}

// WithNodePingInterval sets how often the provider is pinged; the default, also for zero, is
// DefaultPingInterval. Without a lease the status is written as often.
func WithNodePingInterval(interval time.Duration) NodeControllerOpt {
	return func(n *NodeController) error {
		if interval < 0 {
			return errdefs.InvalidInputf("a ping interval of %v is not possible: it must not be negative", interval)
		}
		n.pingInterval = cmp.Or(interval, DefaultPingInterval)
		return nil
	}
}

// WithNodePingTimeout sets how long a ping may take before the provider counts
// as not well; the default is the ping interval, and so is zero.
func WithNodePingTimeout(timeout time.Duration) NodeControllerOpt {
	return func(n *NodeController) error {
		if timeout < 0 {
			return errdefs.InvalidInputf("a ping timeout of %v is not possible: it must not be negative", timeout)
		}
		n.pingTimeout = timeout
		return nil
	}
}

// WithNodeStatusUpdateInterval sets how often the status is compared with the
// API's where there is a lease; the default, also for zero, is DefaultStatusUpdateInterval.
func WithNodeStatusUpdateInterval(interval time.Duration) NodeControllerOpt {
	return func(n *NodeController) error {
		if interval < 0 {
			return errdefs.InvalidInputf("a status update interval of %v is not possible: it must not be negative", interval)
		}
		n.statusInterval = cmp.Or(interval, DefaultStatusUpdateInterval)
		return nil
	}
}

// WithNodeStatusUpdateErrorHandler sets what happens when the node's status
// cannot be written; by default a node that was deleted is registered again.
func WithNodeStatusUpdateErrorHandler(handler ErrorHandler) NodeControllerOpt {
	return func(n *NodeController) error {
		n.onStatusError = handler
		return nil
	}
}

// WithNodeClaim has the controller act for the node only while this process has
// the claim: Run acquires it first, unless the caller has, writes the identity of
// the process into the node's lease with each renewal, and ends with ErrNodeTaken
// when another process has taken the node.
func WithNodeClaim(claim *Claim) NodeControllerOpt {
	return func(n *NodeController) error {
		if claim == nil {
			return errdefs.InvalidInput("the claim option was given none: pass one, or leave the option out")
		}
		if claim.cfg.Node != n.name {
			return errdefs.InvalidInputf("the claim is to node %s, and this is node %s: make one for each node", claim.cfg.Node, n.name)
		}
		n.claim = claim
		return nil
	}
}

// WithNodeNotReadyAtShutdown has the controller write, when its context ends, that
// the node is not ready, unless the cause is ErrHandedOver. The control plane then
// taints the node at once. By default that is left to the node's lease, which runs
// out if nobody goes on with the node.
func WithNodeNotReadyAtShutdown() NodeControllerOpt {
	return func(n *NodeController) error {
		n.notReadyAtEnd = true
		return nil
	}
}

// WithNodeEventRecorder has events on the Node recorded: Starting, NodeReady,
// NodeNotReady, and what is wrong with a provider that is not well. By default
// there are none.
func WithNodeEventRecorder(events record.EventRecorder) NodeControllerOpt {
	return func(n *NodeController) error {
		if events == nil {
			return errdefs.InvalidInput("the event recorder option was given none: pass one, or leave the option out")
		}
		n.events = events
		return nil
	}
}

// WithNodeRegistrationSlots has each attempt to claim or register the node wait for
// a slot, so that not too many of the nodes of one process do so at the same time.
// take returns when the attempt may begin, or an error after ctx has ended; done is
// called after the attempt.
func WithNodeRegistrationSlots(take func(ctx context.Context) (done func(), err error)) NodeControllerOpt {
	return func(n *NodeController) error {
		if take == nil {
			return errdefs.InvalidInput("the registration slots option was given no function: pass one, or leave the option out")
		}
		n.slot = take
		return nil
	}
}
