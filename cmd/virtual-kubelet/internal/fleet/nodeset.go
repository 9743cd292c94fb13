package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// nodeSet is all nodes of a fleet, or those of one shard. One goroutine uses it.
type nodeSet struct {
	*Fleet
	has func(node string) bool // reports whether a node of that name is one of these

	applied contents                  // of the file, as it was last applied
	nodes   map[string]*runningNode   // in the fleet
	failed  map[string]nodepools.Node // could not be added, also since they have not ended yet as they were
	adopt   map[string]bool           // not added yet; their Nodes are this process's, also with another provider
	left    map[string]leftNode       // Nodes of others, which may have to be deleted
}

func (f *Fleet) newNodeSet(has func(node string) bool) *nodeSet {
	return &nodeSet{
		Fleet: f, has: has, nodes: map[string]*runningNode{}, failed: map[string]nodepools.Node{},
		adopt: map[string]bool{}, left: map[string]leftNode{},
	}
}

// runningNode is a node that is in the fleet.
type runningNode struct {
	nodepools.Node      // as it was wanted
	adopts         bool // its Node may be that of another provider
	removing       bool // the fleet was asked to remove it
	provider       *overlaidProvider
	closer         io.Closer // of its provider; may be nil
}

func (n *runningNode) close() error {
	if n.closer == nil {
		return nil
	}
	return n.closer.Close()
}

// load returns the wanted nodes of this set, and the contents of the files that it read.
// Files whose contents are known are not read. If only some pools are wrong, load returns
// an error and the nodes of the others.
func (s *nodeSet) load(known contents) (*nodepools.Wanted, contents, error) {
	wanted, read := s.cfg.Fixed, contents{}
	var err error
	if s.cfg.File != nil {
		if wanted, read, err = s.cfg.File.load(known); wanted == nil {
			return nil, read, err
		}
		if err == nil {
			s.good.Store(&read)
		}
	}
	some := *wanted
	some.Nodes = nil
	for _, n := range wanted.Nodes {
		if s.has(n.Name) {
			some.Nodes = append(some.Nodes, n)
		}
	}
	return &some, read, err
}

// maxAdditions is how many nodes are added at the same time. Most of them may wait for providers
// that are away: the others run once these have been given up.
const maxAdditions = 1000

// add adds nodes to the fleet, unless ctx has ended when a node's provider is made: then
// another process may have the node already. The Nodes that s.adopt has may be those of another
// provider. One whose provider is long in being made does not hold up the others. Nodes that
// cannot be added are recorded in s.failed.
func (s *nodeSet) add(ctx context.Context, nodes []nodepools.Node) error {
	added, errs := make([]*runningNode, len(nodes)), make([]error, len(nodes))
	var adding errgroup.Group
	adding.SetLimit(maxAdditions)
	for i, n := range nodes {
		adding.Go(func() error {
			if ctx.Err() == nil {
				added[i], errs[i] = s.newNode(ctx, n, s.adopt[n.Name])
			}
			return nil
		})
	}
	_ = adding.Wait() // the errors are in errs
	for i, n := range nodes {
		switch {
		case errs[i] != nil:
			s.failed[n.Name] = n
		case added[i] != nil:
			s.nodes[n.Name] = added[i]
			delete(s.failed, n.Name)
			delete(s.adopt, n.Name)
		}
	}
	return errors.Join(errs...)
}

func (s *nodeSet) newNode(ctx context.Context, n nodepools.Node, adopt bool) (*runningNode, error) {
	config, err := s.cfg.NodeConfig(n, adopt)
	if err != nil {
		return nil, err
	}
	config.NodeSpec.Spec.Taints = nil // the overlay has them
	added := &runningNode{Node: n, adopts: adopt, provider: &overlaidProvider{overlay: n.Overlay}}
	newProvider := func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		provider, nodeProvider, closer, err := s.cfg.NewProvider(ctx, n, cfg)
		added.closer = closer
		if err == nil {
			err = context.Cause(ctx)
		}
		return provider, nodeProvider, err
	}
	if _, err := s.fleet.Add(n.Name, added.provider.wrap(newProvider), nodeutil.WithNodeConfig(config)); err != nil {
		return nil, errors.Join(err, added.close())
	}
	return added, nil
}

// maxRemovals is how many nodes are removed at the same time.
const maxRemovals = 50

// remove removes nodes from the fleet, and closes their providers. A node that has not
// ended when ctx does stays in s.nodes, so that its provider is closed later.
func (s *nodeSet) remove(ctx context.Context, names []string, opts ...nodeutil.RemoveOption) error {
	return s.removeEach(names, func(n *runningNode) error { return s.removeNode(ctx, n, opts) })
}

func (s *nodeSet) removeEach(names []string, remove func(*runningNode) error) error {
	closed, errs := make([]bool, len(names)), make([]error, len(names))
	var removing errgroup.Group
	removing.SetLimit(maxRemovals)
	for i, name := range names {
		n := s.nodes[name]
		removing.Go(func() error {
			errs[i] = remove(n)
			if closed[i] = s.fleet.Node(name) == nil; closed[i] {
				errs[i] = errors.Join(errs[i], n.close())
			}
			return nil
		})
	}
	_ = removing.Wait() // the errors are in errs
	for i, name := range names {
		if closed[i] {
			delete(s.nodes, name)
		}
	}
	return errors.Join(errs...)
}

// removalTimeout is how long a change of the nodes waits for the end of each that it removes.
const removalTimeout = time.Minute

var errNotEnded = errors.New("what it does in the provider goes on, although it was cancelled")

// removeInTime is remove, but one node whose provider does not return holds up neither the
// others nor later changes. It is in s.nodes until it was removed again after it has ended.
func (s *nodeSet) removeInTime(ctx context.Context, names []string, opts ...nodeutil.RemoveOption) error {
	return s.removeEach(names, func(n *runningNode) error {
		ctx, cancel := context.WithTimeoutCause(ctx, removalTimeout, errNotEnded)
		defer cancel()
		return s.removeNode(ctx, n, opts)
	})
}

// removeNode asks the fleet to remove a node, once, and waits for its end; not again in a later
// attempt.
func (s *nodeSet) removeNode(ctx context.Context, n *runningNode, opts []nodeutil.RemoveOption) error {
	if !n.removing {
		n.removing = true
		return s.fleet.Remove(ctx, n.Name, opts...)
	}
	if s.fleet.Node(n.Name) != nil {
		return fmt.Errorf("node %s has not ended yet: %w", n.Name, errNotEnded)
	}
	return nil
}

// close closes the providers of the nodes.
func (s *nodeSet) close() error {
	var errs []error
	for _, n := range s.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
