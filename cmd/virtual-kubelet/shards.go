package main

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

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// share runs the fleet in group with the nodes of the shards that this process
// holds, until ctx ends.
func (f *virtualFleet) share(ctx context.Context, group *errgroup.Group) {
	// The fleet outlives the shards, whose nodes leave it.
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return f.fleet.Run(running) })
	group.Go(func() error {
		defer end()
		return f.sharding(f.client).Run(ctx, f.serveShard)
	})
}

// ofShard is the same fleet, as far as one shard is concerned.
func (f *virtualFleet) ofShard(shard int) *virtualFleet {
	of := *f
	of.nodes, of.left, of.failed = map[string]*fleetNode{}, map[string]leftNode{}, map[string]nodepools.Node{}
	of.mine = func(node string) bool { return shardOf(node, f.shards) == shard }
	return &of
}

// shardOf is the shard of a node. It depends on nothing but the name, so that
// processes agree on it while their files differ. Nodes that are numbered are dealt
// out one after the other.
func shardOf(node string, shards int) int {
	name := strings.TrimRight(node, "0123456789")
	hash := fnv.New32a()
	hash.Write([]byte(name))
	number, err := strconv.ParseUint(node[len(name):], 10, 32)
	if err != nil {
		number = 0 // there is none, or too long a one
	}
	return int((uint64(hash.Sum32()) + number) % uint64(shards))
}

// serveShard has the nodes of a shard in the fleet until ctx ends.
func (f *virtualFleet) serveShard(ctx context.Context, shard int) {
	of := f.ofShard(shard)
	defer f.loads.forget(of)
	ctx = log.WithLogger(ctx, log.G(ctx).WithField("shard", shard))
	var retry time.Time
	waiting, err := of.begin(ctx)
	if waiting || err != nil {
		retry = time.Now()
	}
	if err != nil && ctx.Err() == nil {
		log.G(ctx).WithError(err).Error("Not all nodes of a shard could be made; trying again")
	}
	of.follow(ctx, retry)
	var how []nodeutil.RemoveOption
	if !node.EndsNotReady(ctx, f.notReadyAtEnd) {
		how = append(how, nodeutil.KeepingReady())
	}
	ctx = context.WithoutCancel(ctx)
	if err := of.end(ctx, how...); err != nil {
		log.G(ctx).WithError(err).Warn("The nodes of a shard did not leave well")
	}
}

// begin adds the nodes of a shard. If the file cannot be used they come as they
// were in it before, like those of other shards, which stay.
func (f *virtualFleet) begin(ctx context.Context) (waiting bool, err error) {
	wanted, read, fileErr := f.load(nil)
	f.taken = read
	if fileErr != nil {
		if good := f.good.Load(); good != nil {
			log.G(ctx).WithError(fileErr).Error("The file of the node pools cannot be used; the nodes are as it wanted them before")
			if wanted, _, err = f.load(*good); err != nil {
				return false, err
			}
		} else if wanted == nil {
			return false, fmt.Errorf("the file of the node pools cannot be used: %w", fileErr)
		} else {
			log.G(ctx).WithError(fileErr).Error("The file of the node pools cannot be used as a whole; the nodes are those of the pools with which nothing is wrong")
		}
	}
	waiting, err = f.apply(ctx, wanted)
	f.loads.note(f, errors.Join(fileErr, err), true)
	return waiting, err
}

// end removes all nodes of a shard, and returns when they have ended.
func (f *virtualFleet) end(ctx context.Context, opts ...nodeutil.RemoveOption) error {
	names := slices.Collect(maps.Keys(f.nodes))
	var ending []*nodeutil.Node // also those that the file has removed a moment ago
	for _, name := range names {
		if n := f.fleet.Node(name); n != nil {
			ending = append(ending, n)
		}
	}
	err := f.remove(ctx, names, opts...)
	for _, n := range ending {
		<-n.Done()
	}
	return errors.Join(err, f.closeProviders())
}
