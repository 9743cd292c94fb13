package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
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
	nodepools.Node           // as it was wanted
	adopts         bool      // its Node may be that of another provider
	removing       bool      // the fleet was asked to remove it
	ended          time.Time // when it was first seen to have ended by itself
	provider       *overlaidProvider
	claim          *node.Claim   // is released when its provider is closed; may be nil
	closer         io.Closer     // of its provider; may be nil
	closed         chan struct{} // closed when closer has returned closeErr; nil until it is called
	closeErr       error
}

// release lets other processes have the node, once: its provider is closed.
func (n *runningNode) release(ctx context.Context) {
	if n.claim != nil {
		n.claim.Release(ctx)
	}
}

// close closes the provider, once, and waits until it is closed, or ctx has ended.
func (n *runningNode) close(ctx context.Context) (closed bool, err error) {
	if n.closer == nil {
		return true, nil
	}
	if n.closed == nil {
		n.closed = make(chan struct{})
		go func() { // ends with the provider's Close; the nodeSet's close waits for it
			defer close(n.closed)
			n.closeErr = n.closer.Close()
		}()
	}
	select {
	case <-n.closed:
		return true, n.closeErr
	case <-ctx.Done():
	}
	select {
	case <-n.closed: // although ctx has ended, too
		return true, n.closeErr
	default:
		return false, fmt.Errorf("the provider of node %s is not closed yet: %w", n.Name, context.Cause(ctx))
	}
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
// that are away: nodes beyond this number are added once these have been given up.
const maxAdditions = 1000

// add adds nodes to the fleet, unless ctx has ended when a node's provider is made: then
// another process may have the node already. The Nodes that s.adopt has may be those of another
// provider. One whose provider is long in being made does not hold up the others. Nodes that
// cannot be added are recorded in s.failed.
func (s *nodeSet) add(ctx context.Context, nodes []nodepools.Node) error {
	return s.exchange(ctx, nil, nodes)
}

// exchange makes removals, and adds nodes as add does: each once the node of its name has ended.
// All wait for a moment until all have.
func (s *nodeSet) exchange(ctx context.Context, removals []*removal, nodes []nodepools.Node) error {
	removed := make(chan struct{}) // closed when all removals have been made
	earlier := map[string]*removal{}
	for _, r := range removals {
		earlier[r.node.Name] = r
	}
	added, errs := make([]*runningNode, len(nodes)), make([]error, len(nodes))
	var removing, adding errgroup.Group
	removing.Go(func() error {
		defer close(removed)
		runRemovals(removals)
		return nil
	})
	waiting, cancel := context.WithTimeout(ctx, replacementTimeout)
	defer cancel()
	select {
	case <-removed:
	case <-waiting.Done():
	}
	adding.SetLimit(maxAdditions)
	for i, n := range nodes {
		adding.Go(func() error {
			if r := earlier[n.Name]; r != nil {
				<-r.made
				if !r.ended {
					return nil
				}
			}
			if ctx.Err() == nil {
				added[i], errs[i] = s.newNode(ctx, n, s.adopt[n.Name])
			}
			return nil
		})
	}
	_, _ = adding.Wait(), removing.Wait() // the errors are in errs and removals
	err := s.forgetRemoved(removals)
	for i, n := range nodes {
		switch {
		case added[i] != nil:
			s.nodes[n.Name] = added[i]
			delete(s.failed, n.Name)
			delete(s.adopt, n.Name)
		case errs[i] != nil || s.nodes[n.Name] != nil: // that has not ended yet
			s.failed[n.Name] = n
		}
	}
	return errors.Join(append([]error{err}, errs...)...)
}

func (s *nodeSet) newNode(ctx context.Context, n nodepools.Node, adopt bool) (*runningNode, error) {
	config, err := s.cfg.NodeConfig(n, adopt)
	if err != nil {
		return nil, err
	}
	config.NodeSpec.Spec.Taints = nil // the overlay has them
	config.KeepClaim = true
	added := &runningNode{Node: n, adopts: adopt, claim: config.Claim, provider: &overlaidProvider{overlay: n.Overlay}}
	newProvider := func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		provider, nodeProvider, closer, err := s.cfg.NewProvider(ctx, n, cfg)
		added.closer = closer
		if err == nil {
			err = context.Cause(ctx)
		}
		return provider, nodeProvider, err
	}
	if _, err := s.fleet.Add(n.Name, added.provider.wrap(newProvider), nodeutil.WithNodeConfig(config)); err != nil {
		_, closeErr := added.close(context.WithoutCancel(ctx))
		return nil, errors.Join(err, closeErr)
	}
	return added, nil
}

// close closes the providers of the nodes, and gives each node back once its own is closed: the
// process may be killed before all are. What waits for the API server holds up no Close.
func (s *nodeSet) close() error {
	nodes := slices.Collect(maps.Values(s.nodes))
	errs := make([]error, len(nodes))
	releasing := make(chan struct{}, maxRemovals)
	var ending sync.WaitGroup
	for i, n := range nodes {
		ending.Go(func() {
			_, errs[i] = n.close(context.Background())
			releasing <- struct{}{}
			n.release(context.Background())
			<-releasing
		})
	}
	ending.Wait()
	return errors.Join(errs...)
}
