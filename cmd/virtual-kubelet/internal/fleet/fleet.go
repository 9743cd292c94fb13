package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// Config is what a Fleet is made of.
type Config struct {
	// Nodes is what the nodes have in common. Its Client is required.
	Nodes nodeutil.FleetConfig
	// NodeConfig configures a node; the fleet sets the taints. With adopt the Node may
	// be that of another provider.
	NodeConfig func(n nodepools.Node, adopt bool) (nodeutil.NodeConfig, error)
	// NewProvider makes a node's provider, and what closes it, which may be nil. It returns
	// early when ctx ends.
	NewProvider func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error)

	// File has the wanted nodes, and is watched. Nil means that Fixed has them.
	File  *File
	Fixed *nodepools.Wanted

	// Shards divides the nodes among processes. With a Count of zero this process has
	// all nodes.
	Shards nodeutil.Shards
	// NotReadyAtShutdown is as in nodeutil.NodeConfig, for the nodes of a shard.
	NotReadyAtShutdown bool
}

// Fleet is the nodes of a process. Make it with New.
type Fleet struct {
	cfg     Config
	fleet   *nodeutil.Fleet
	reloads *reloads
	shards  *shardsHeld
	good    atomic.Pointer[contents] // of the file, when it could last be used as a whole

	all      *nodeSet      // without shards
	first    int           // how many nodes are wanted at the start
	giveUp   func()        // ends the wait for the providers of those
	begun    chan struct{} // closed when all of them were tried, with the fields below
	made     []string      // their names
	startErr error         // why not all could be made
}

// FileError is the error of New if no pool of the file can be used.
type FileError struct{ Err error }

func (e *FileError) Error() string { return e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// New makes the fleet, and its nodes unless they are shared with other processes. If
// only some nodes can be made there is no error: Run logs it, and tries again. Nodes whose
// providers are long in being made are made while the others run. ctx is for the time of the call.
func New(ctx context.Context, cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg, reloads: newReloads(), shards: newShardsHeld(cfg.Shards.Name, cfg.Shards.Count), giveUp: func() {}, begun: make(chan struct{})}
	f.all = f.newNodeSet(func(string) bool { return true })
	wanted, read, fileErr := f.all.load(nil)
	if wanted == nil {
		return nil, &FileError{fileErr}
	}
	f.all.applied = read
	var err error
	if f.fleet, err = nodeutil.NewFleet(cfg.Nodes); err != nil {
		return nil, err
	}
	if cfg.File != nil {
		if err := f.fleet.Metrics().Register(f.reloads); err != nil {
			return nil, fmt.Errorf("cannot have metrics of the node pools: %w", err)
		}
	}
	f.reloads.record(f.all, fileErr, true)
	if f.sharded() {
		if err := f.fleet.Metrics().Register(f.shards); err != nil {
			return nil, fmt.Errorf("cannot have metrics of the shards: %w", err)
		}
		close(f.begun)
		return f, nil
	}
	f.first = len(wanted.Nodes)
	if f.addFirst(ctx, wanted.Nodes, fileErr) && len(f.made) == 0 && f.startErr != nil {
		return nil, f.startErr
	}
	return f, nil
}

// startPatience is how long the nodes that are made wait at the start for the next one, and longestPatience for all
// others: the pods of those that begin together are read together. It is well below the time in which their leases
// have to be renewed, 40 s after an earlier process did.
const (
	startPatience   = 5 * time.Second
	longestPatience = 20 * time.Second
)

// addFirst adds the nodes of the start, and reports whether all were tried. If not, some are made, which can
// run; the others are added when their providers are made, until ctx ends before addFirst returns, or giveUp is called.
func (f *Fleet) addFirst(ctx context.Context, nodes []nodepools.Node, fileErr error) (all bool) {
	making, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	f.giveUp = func() { giveUp(context.Canceled) }
	defer context.AfterFunc(ctx, func() { giveUp(context.Cause(ctx)) })()
	go func() { // Close waits for it
		defer close(f.begun)
		f.startErr = errors.Join(fileErr, f.all.add(making, nodes))
		f.made = slices.Sorted(maps.Keys(f.all.nodes))
	}()
	for began, before := time.Now(), 0; ; {
		select {
		case <-f.begun:
			return true
		case <-time.After(startPatience):
		}
		made := len(f.fleet.Nodes())
		if made > 0 && (made == before || time.Since(began) >= longestPatience) {
			return false
		}
		before = made
	}
}

// Run runs the nodes until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if f.sharded() {
		f.share(ctx, group)
		return group.Wait()
	}
	defer context.AfterFunc(ctx, f.giveUp)()
	group.Go(func() error { return f.fleet.Run(ctx) })
	group.Go(func() error {
		retry := f.awaitFirst(ctx)
		f.all.watch(ctx, retry)
		return nil
	})
	return group.Wait()
}

// awaitFirst waits until all nodes of the start were tried. Nothing else changes the nodes before: one that is
// still being made is neither added again nor taken for one that is gone. It returns when to try again what has failed.
func (f *Fleet) awaitFirst(ctx context.Context) (retry time.Time) {
	select {
	case <-f.begun:
	default:
		log.G(ctx).WithFields(log.Fields{"made": len(f.fleet.Nodes()), "nodes": f.first}).
			Info("Some providers are waited for; the nodes of the others run")
		<-f.begun
	}
	if f.startErr != nil && ctx.Err() == nil {
		log.G(ctx).WithError(f.startErr).Error("Not all nodes could be made; the others run, and it is tried again")
	}
	switch {
	case f.cfg.File != nil:
		return time.Now() // for what is left of earlier nodes
	case f.startErr != nil:
		return time.Now().Add(retryInterval)
	}
	return time.Time{}
}

// Close closes the providers of all nodes, once Run has returned.
func (f *Fleet) Close() error {
	f.giveUp()
	<-f.begun
	return f.all.close()
}

// Wanted returns how many nodes are wanted at the start.
func (f *Fleet) Wanted() int { return f.first }

// Made returns the names of the nodes that could be made at the start, sorted, when all were tried, or
// an error when ctx ends before.
func (f *Fleet) Made(ctx context.Context) ([]string, error) {
	select {
	case <-f.begun:
		return f.made, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Node returns the node of that name, or nil.
func (f *Fleet) Node(name string) *nodeutil.Node { return f.fleet.Node(name) }

// ProcessHandler is as that of nodeutil.Fleet.
func (f *Fleet) ProcessHandler() http.Handler { return f.fleet.ProcessHandler() }

func (f *Fleet) sharded() bool { return f.cfg.Shards.Count > 0 }
