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

	all      *nodeSet // without shards
	startErr error    // why not all nodes could be made at the start
}

// FileError is the error of New if no pool of the file can be used.
type FileError struct{ Err error }

func (e *FileError) Error() string { return e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// New makes the fleet, and its nodes unless they are shared with other processes. If
// only some nodes can be made there is no error: Run logs it, and tries again. ctx is for
// the time of the call.
func New(ctx context.Context, cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg, reloads: newReloads(), shards: newShardsHeld(cfg.Shards.Name, cfg.Shards.Count)}
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
		return f, nil
	}
	f.startErr = errors.Join(fileErr, f.all.add(ctx, wanted.Nodes))
	if len(f.all.nodes) == 0 && f.startErr != nil {
		return nil, f.startErr
	}
	return f, nil
}

// Run runs the nodes until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if f.sharded() {
		f.share(ctx, group)
		return group.Wait()
	}
	if f.startErr != nil {
		log.G(ctx).WithError(f.startErr).Error("Not all nodes could be made; the others run, and it is tried again")
	}
	var retry time.Time
	switch {
	case f.cfg.File != nil:
		retry = time.Now() // for what is left of earlier nodes
	case f.startErr != nil:
		retry = time.Now().Add(retryInterval)
	}
	group.Go(func() error { return f.fleet.Run(ctx) })
	group.Go(func() error { f.all.watch(ctx, retry); return nil })
	return group.Wait()
}

// Close closes the providers of all nodes, once Run has returned.
func (f *Fleet) Close() error { return f.all.close() }

// Names returns the names of the nodes that New has made, sorted.
func (f *Fleet) Names() []string { return slices.Sorted(maps.Keys(f.all.nodes)) }

// Node returns the node of that name, or nil.
func (f *Fleet) Node(name string) *nodeutil.Node { return f.fleet.Node(name) }

// ProcessHandler is as that of nodeutil.Fleet.
func (f *Fleet) ProcessHandler() http.Handler { return f.fleet.ProcessHandler() }

func (f *Fleet) sharded() bool { return f.cfg.Shards.Count > 0 }
