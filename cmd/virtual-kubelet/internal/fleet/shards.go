package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// share runs the fleet in group with the nodes of the shards that this process holds,
// until ctx ends.
func (f *Fleet) share(ctx context.Context, group *errgroup.Group) {
	// The fleet outlives the shards, whose nodes leave it.
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return f.fleet.Run(running) })
	group.Go(func() error {
		defer end()
		return f.cfg.Shards.Run(ctx, f.serveShard)
	})
}

// shardOf is the shard of a node. It depends on nothing but the name, so that processes
// whose files differ agree on it. Numbered nodes are dealt out one after the other.
func shardOf(node string, shards int) int {
	name := strings.TrimRight(node, "0123456789")
	hash := fnv.New32a()
	hash.Write([]byte(name))
	number, err := strconv.ParseUint(node[len(name):], 10, 32)
	if err != nil {
		number = 0 // there is none, or it is too long
	}
	return int((uint64(hash.Sum32()) + number) % uint64(shards))
}

// serveShard has the nodes of a shard in the fleet until ctx ends.
func (f *Fleet) serveShard(ctx context.Context, shard int) {
	f.shards.held.Add(1)
	defer f.shards.held.Add(-1)
	s := f.newNodeSet(func(node string) bool { return shardOf(node, f.cfg.Shards.Count) == shard })
	defer f.reloads.forget(s)
	ctx = log.WithLogger(ctx, log.G(ctx).WithField("shard", shard))
	// All at once, as their next process may begin, and before anything here is waited for.
	handOver := func() {
		if !node.EndsNotReady(ctx, f.cfg.NotReadyAtShutdown) {
			f.fleet.HandOver(s.has)
		}
	}
	context.AfterFunc(ctx, handOver)
	var retry time.Time
	waiting, err := s.begin(ctx)
	f.reloads.forget(f.all) // as of the start; from now on the shard watches the file
	if waiting || err != nil {
		retry = time.Now()
	}
	if err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).Error("Not all nodes of a shard could be made; trying again")
	}
	s.watch(ctx, retry)
	handOver() // also those that were being added
	var opts []nodeutil.RemoveOption
	if !node.EndsNotReady(ctx, f.cfg.NotReadyAtShutdown) {
		opts = append(opts, nodeutil.KeepingReady())
	}
	if err := s.end(context.WithoutCancel(ctx), opts...); err != nil {
		log.G(ctx).WithError(err).Warn("Not all nodes of a shard could be removed in good order")
	}
}

// begin adds the nodes of a shard. If the file cannot be used they are as the file
// wanted them before, like those of other shards, which stay.
func (s *nodeSet) begin(ctx context.Context) (waiting bool, err error) {
	wanted, read, fileErr := s.load(nil)
	s.applied = read
	if fileErr != nil {
		if good := s.good.Load(); good != nil {
			log.G(ctx).WithError(fileErr).Error("The file of the node pools cannot be used; the nodes are as it wanted them before")
			if wanted, _, err = s.load(*good); err != nil {
				return false, err
			}
		} else if wanted == nil {
			return false, fmt.Errorf("the file of the node pools cannot be used: %w", fileErr)
		} else {
			log.G(ctx).WithError(fileErr).Error("The file of the node pools cannot be used as a whole; the nodes are those of the pools with which nothing is wrong")
		}
	}
	waiting, err = s.apply(ctx, wanted)
	s.reloads.record(s, errors.Join(fileErr, err), true)
	return waiting, err
}

// end removes all nodes of a shard, and returns when they have ended.
func (s *nodeSet) end(ctx context.Context, opts ...nodeutil.RemoveOption) error {
	names := slices.Collect(maps.Keys(s.nodes))
	var ending []*nodeutil.Node // also those that were removed a moment ago
	for _, name := range names {
		if n := s.fleet.Node(name); n != nil {
			ending = append(ending, n)
		}
	}
	err := s.remove(ctx, names, opts...)
	for _, n := range ending {
		<-n.Done()
	}
	return errors.Join(err, s.close())
}
