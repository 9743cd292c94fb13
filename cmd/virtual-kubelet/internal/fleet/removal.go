package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

const (
	// maxRemovals is how many nodes are removed at the same time.
	maxRemovals = 50
	// removalTimeout is how long a change of the nodes waits for the end of each that it removes.
	removalTimeout = time.Minute
	// replacementTimeout is how long the nodes that a change adds wait for the end of all that it
	// removes: one may have been of the same state directory or port. It is well below the time in
	// which the leases of those that are replaced have to be renewed.
	replacementTimeout = 5 * time.Second
)

var errNotEnded = errors.New("what it does in the provider goes on, although it was cancelled")

// removal removes a node from the fleet, and closes its provider.
type removal struct {
	node  *runningNode
	run   func() (ended bool, err error)
	made  chan struct{} // closed when run has returned the fields below
	ended bool
	err   error
}

// remove removes nodes from the fleet, and closes their providers. A node that has not
// ended when ctx does stays in s.nodes, so that its provider is closed later.
func (s *nodeSet) remove(ctx context.Context, names []string, opts ...nodeutil.RemoveOption) error {
	removals := s.removals(names, func(n *runningNode) (bool, error) { return s.removeNode(ctx, n, opts) })
	runRemovals(removals)
	return s.forgetRemoved(removals)
}

// removalsInTime are those of remove, but one node whose provider does not return holds up neither
// the others nor later changes. It is in s.nodes until it was removed again after it has ended.
func (s *nodeSet) removalsInTime(ctx context.Context, names []string, opts ...nodeutil.RemoveOption) []*removal {
	return s.removals(names, func(n *runningNode) (bool, error) {
		limit := removalTimeout
		if n.closed != nil { // it was waited for
			limit = 0
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit, errNotEnded)
		defer cancel()
		return s.removeNode(ctx, n, opts)
	})
}

func (s *nodeSet) removals(names []string, remove func(*runningNode) (ended bool, err error)) []*removal {
	var removals []*removal
	for _, name := range names {
		n := s.nodes[name]
		removals = append(removals, &removal{node: n, made: make(chan struct{}), run: func() (bool, error) { return remove(n) }})
	}
	return removals
}

// removeNode asks the fleet to remove a node, once, and waits for its end; not again in a later
// attempt. Then it closes the provider, and gives the node back.
func (s *nodeSet) removeNode(ctx context.Context, n *runningNode, opts []nodeutil.RemoveOption) (ended bool, err error) {
	asked := n.removing
	if n.removing = true; !asked {
		err = s.fleet.Remove(ctx, n.Name, opts...)
	}
	if s.fleet.Node(n.Name) != nil {
		if asked {
			err = fmt.Errorf("node %s has not ended yet: %w", n.Name, errNotEnded)
		}
		return false, err
	}
	ended, closeErr := n.close(ctx)
	if ended {
		n.release(ctx)
	}
	return ended, errors.Join(err, closeErr)
}

// runRemovals makes the removals, some at a time.
func runRemovals(removals []*removal) {
	var removing errgroup.Group
	removing.SetLimit(maxRemovals)
	for _, r := range removals {
		removing.Go(func() error {
			defer close(r.made)
			r.ended, r.err = r.run()
			return nil
		})
	}
	_ = removing.Wait() // the errors are in removals
}

// forgetRemoved drops the nodes that have ended from s.nodes, and returns the errors of all.
func (s *nodeSet) forgetRemoved(removals []*removal) error {
	var errs []error
	for _, r := range removals {
		if r.ended {
			delete(s.nodes, r.node.Name)
		}
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}
