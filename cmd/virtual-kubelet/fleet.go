package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// virtualFleet puts many nodes together: those of --nodes, or of the pools in a
// file.
type virtualFleet struct {
	*options
	client  kubernetes.Interface
	address string
	auth    nodeutil.Auth

	fleet *nodeutil.Fleet
	flagz map[string]string // for /flagz

	fixed *nodepools.Wanted         // the nodes of --nodes
	pools *poolFile                 // of --config; nil with --nodes
	good  *atomic.Pointer[contents] // of the file, when it could last be used
	taken contents                  // of the file, as it was last taken
	mine  func(node string) bool    // nil: all nodes are; see ofShard
	loads *reloads                  // of the file

	// Not for several goroutines.
	nodes  map[string]*fleetNode     // those that are in the fleet
	failed map[string]nodepools.Node // those that could not be added
	unmade error                     // why not all nodes could be made at the start
	left   map[string]leftNode       // Nodes that are left of others, and may have to be deleted
}

// run runs the nodes until ctx ends.
func (f *virtualFleet) run(ctx context.Context, began time.Time) (err error) {
	err = f.build()
	defer func() { err = errors.Join(err, f.closeProviders()) }()
	if err != nil {
		return err
	}
	fields := log.Fields{"address": f.address}
	if f.shards > 0 {
		fields["shards"] = f.shards
	} else {
		fields["nodes"] = len(f.nodes)
	}
	if f.pools != nil {
		fields["config"] = f.poolsFile
	} else {
		fields["name"], fields["provider"] = f.nodeName, f.options.provider
	}
	if f.unmade != nil {
		log.G(ctx).WithError(f.unmade).Error("Not all nodes could be made; the others run, and it is tried again")
	}
	log.G(ctx).WithFields(fields).Info("Starting nodes")
	group, ctx := errgroup.WithContext(ctx)
	if f.metricsAddr != "" {
		serve, err := f.metricsServer(ctx, f.fleet.ProcessHandler())
		if err != nil {
			return err
		}
		group.Go(func() error { return serve(ctx) })
	}
	if f.shards > 0 {
		f.share(ctx, group)
		return group.Wait()
	}
	names := slices.Sorted(maps.Keys(f.nodes))
	group.Go(func() error { return f.fleet.Run(ctx) })
	group.Go(func() error { return f.awaitReady(ctx, names, began) })
	var retry time.Time
	switch {
	case f.pools != nil:
		retry = time.Now() // for what is left of earlier nodes
	case f.unmade != nil:
		retry = time.Now().Add(retryInterval)
	}
	group.Go(func() error { f.follow(ctx, retry); return nil })
	return group.Wait()
}

// awaitReady says when the first nodes are all ready; the error is that they are
// not in time.
func (f *virtualFleet) awaitReady(ctx context.Context, names []string, began time.Time) error {
	starting, started := f.starting(ctx, began)
	defer started()
	for _, name := range names {
		n := f.fleet.Node(name)
		if n == nil {
			continue // the file has not got it any more
		}
		of := log.WithLogger(starting, log.G(starting).WithField("node", name))
		if err := awaitCondition(of, n); err != nil {
			return unlessStopped(ctx, fmt.Errorf("node %s: %w", name, err))
		}
	}
	log.G(ctx).WithFields(log.Fields{"nodes": len(names), "took": time.Since(began).Round(time.Millisecond).String()}).Info("All nodes are ready")
	return nil
}

// build makes the fleet, and its nodes unless they are shared with others.
func (f *virtualFleet) build() error {
	if f.poolsFile != "" {
		f.pools, f.good = newPoolFile(f.options), &atomic.Pointer[contents]{}
	} else {
		fixed, err := f.numbered()
		if err != nil {
			return err
		}
		f.fixed = fixed
	}
	wanted, read, fileErr := f.load(nil)
	if wanted == nil {
		return usageError{fileErr}
	}
	f.taken = read
	var err error
	config := nodeutil.FleetConfig{
		Client:               f.client,
		Namespace:            f.namespace,
		InformerResyncPeriod: f.fullResyncPeriod,
		EventQPS:             f.eventQPS,
		EventSource:          f.eventSource,
		EventBurst:           f.eventBurst,
		Auth:                 f.auth,
		HTTPListenAddr:       net.JoinHostPort(f.listenAddress, strconv.Itoa(f.port)),
		PortPerNode:          f.portPerNode,
		DebugHTTP:            f.debugHTTP,
	}
	var serving nodeutil.NodeConfig
	for _, opt := range (&virtualNode{options: f.options}).servingOptions() {
		if err := opt(&serving); err != nil {
			return err
		}
	}
	config.TLSConfig = serving.TLSConfig
	if f.fleet, err = nodeutil.NewFleet(config); err != nil {
		return err
	}
	if f.loads = newReloads(); f.pools != nil {
		if err := f.fleet.Metrics().Register(f.loads); err != nil {
			return fmt.Errorf("cannot have metrics of the node pools: %w", err)
		}
	}
	f.loads.note(f, fileErr, true)
	f.flagz, f.nodes, f.left = f.flagValues(), map[string]*fleetNode{}, map[string]leftNode{}
	f.failed = map[string]nodepools.Node{}
	if f.shards > 0 {
		return nil
	}
	unmade := []error{fileErr}
	for _, n := range wanted.Nodes {
		node, err := f.add(context.Background(), n, false)
		if err != nil {
			f.failed[n.Name] = n
			unmade = append(unmade, err)
			continue
		}
		f.nodes[n.Name] = node
	}
	f.unmade = errors.Join(unmade...)
	if len(f.nodes) == 0 {
		return f.unmade // nil if there are to be no nodes
	}
	return nil
}

// load returns which nodes there are to be, and what the files hold that say it. Of
// those that are known nothing is read. Beside an error there may be the nodes of the
// pools with which nothing is wrong.
func (f *virtualFleet) load(known contents) (*nodepools.Wanted, contents, error) {
	wanted, read := f.fixed, contents{}
	var err error
	if f.pools != nil {
		if wanted, read, err = f.pools.load(known); wanted == nil {
			return nil, read, err
		}
		if err == nil {
			f.good.Store(&read)
		}
	}
	if f.mine == nil {
		return wanted, read, err
	}
	some := *wanted
	some.Nodes = nil
	for _, n := range wanted.Nodes {
		if f.mine(n.Name) {
			some.Nodes = append(some.Nodes, n)
		}
	}
	return &some, read, err
}

// numbered are the nodes of --nodes.
func (o *options) numbered() (*nodepools.Wanted, error) {
	config, err := readProviderConfig(o.providerConfig)
	if err != nil {
		return nil, err
	}
	nodes := make([]nodepools.Node, o.nodes)
	for i := range nodes {
		nodes[i] = nodepools.Node{
			Name:           o.nodeName + "-" + strconv.Itoa(i),
			Overlay:        nodepools.Overlay{Taints: o.taints(o.provider)},
			OS:             o.os,
			Provider:       o.provider,
			ProviderConfig: string(config),
		}
		if o.portPerNode && o.port != 0 {
			nodes[i].Port = o.port + i
		}
	}
	return &nodepools.Wanted{Nodes: nodes}, nil
}
