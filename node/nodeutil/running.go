package nodeutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Run runs the node until ctx ends, and returns nil; or it returns the error with
// which one of its parts has failed. The Node stays as it is, unless
// NodeConfig.NotReadyAtShutdown is set. Pods go on running in the provider. It
// can be called once, and not for a node of a Fleet.
func (n *Node) Run(ctx context.Context) (err error) {
	if n.inFleet {
		return errors.New("the node is one of a fleet, which runs it: run the fleet")
	}
	if !n.started.CompareAndSwap(false, true) {
		return errors.New("the node was started before: make a new one to run it again")
	}
	defer func() { n.end(err) }()
	ctx, cancel := context.WithCancel(n.logging(ctx))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if n.cfg.Handler != nil {
		listener, err := n.listen(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		n.startServing(ctx, group, listener)
		if n.unguarded {
			n.warnOfDefaultAuth(ctx)
		}
	} else if n.cfg.attachRoutes != nil {
		log.G(ctx).Warn("The kubelet API is not served: AttachProviderRoutes was given a mux, but NodeConfig.Handler is nil")
	}
	defer n.shared.start(ctx, group)() // after cancel, which runs first
	defer cancel()
	group.Go(func() error { return n.control(ctx) })
	return group.Wait()
}

// logging returns ctx with the node's name for the log.
func (n *Node) logging(ctx context.Context) context.Context {
	return log.WithLogger(ctx, log.G(ctx).WithField("node", n.cfg.NodeSpec.Name))
}

// end says with what the node has ended.
func (n *Node) end(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
	close(n.done)
}

// control runs both controllers until ctx ends, or one of them fails: not before
// this process may act for the node, and no longer than it may.
func (n *Node) control(ctx context.Context) error {
	defer n.over.Store(true)
	if n.cfg.Claim != nil {
		defer n.release(ctx)
	}
	if err := n.nodes.Claim(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	if n.cfg.Claim != nil {
		n.warnOfPodsLeftAlone()
	}
	outer := ctx
	group, ctx := errgroup.WithContext(ctx)
	if n.defaultAuth != nil && n.cfg.Handler != nil {
		group.Go(func() error { return n.pollClientCA(ctx) })
	}
	podsEnd := func() {}
	group.Go(func() error {
		wait, err := n.pods.Start(ctx, n.cfg.NumWorkers)
		if err == nil {
			podsEnd = wait
		}
		return unlessEnded(ctx, err)
	})
	// Not in the group, as the wait for the pods, so that a node has no goroutine that only waits.
	err := n.keepNode(ctx, group)
	if err != nil {
		group.Go(func() error { return err })
	}
	err = group.Wait() // ends ctx
	podsEnd()
	if err == nil && node.EndsNotReady(outer, n.cfg.NotReadyAtShutdown) {
		n.markPodsNotReady(outer)
	}
	return err
}

// keepNode runs the controller of the Node, which registers it once that of the pods is
// ready: the node takes pods only when somebody is there to see them.
func (n *Node) keepNode(ctx context.Context, group *errgroup.Group) error {
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-n.nodes.Ready():
			close(n.ready)
		}
		return nil
	})
	return unlessEnded(ctx, n.nodes.Run(ctx))
}

// release gives the claim back, or leaves that to the caller: not where another process goes on,
// since there is nothing to give back.
func (n *Node) release(ctx context.Context) {
	if !n.cfg.KeepClaim || errors.Is(context.Cause(ctx), node.ErrHandedOver) {
		n.cfg.Claim.Release(ctx)
	}
}

func (n *Node) warnOfPodsLeftAlone() {
	for _, pod := range n.cfg.Claim.PodsLeftAlone() {
		n.cfg.EventRecorder.Event(&pod, corev1.EventTypeWarning, reasonLeftAlone,
			"The pod was started by another provider than the node has now, which neither runs nor stops it: end it there, then delete it with --force")
	}
}

// unlessEnded drops what a part has to say about having been stopped.
func unlessEnded(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		log.G(ctx).WithError(err).Info("Stopped before the node was ready")
		return nil
	}
	return err
}

// Ready is closed once the node is registered and takes pods.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Done is closed when Run has returned.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns what Run returned, once Done is closed.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// WaitReady waits until the node is ready, it has ended, ctx ends, or the
// timeout has passed, and returns an error in all cases but the first. A
// timeout of zero or less means none.
func (n *Node) WaitReady(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("node %s is not ready after %v: %w", n.cfg.NodeSpec.Name, timeout, context.DeadlineExceeded))
		defer cancel()
	}
	select {
	case <-n.ready:
	case <-n.done:
	case <-ctx.Done():
	}
	// More than one of them may have come true.
	select {
	case <-n.done:
		if err := n.Err(); err != nil {
			return err
		}
		return fmt.Errorf("node %s has ended", n.cfg.NodeSpec.Name)
	default:
	}
	select {
	case <-n.ready:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// NodeController returns the controller of the Node object.
func (n *Node) NodeController() *node.NodeController { return n.nodes }

// PodController returns the controller of the pods.
func (n *Node) PodController() *node.PodController { return n.pods }
