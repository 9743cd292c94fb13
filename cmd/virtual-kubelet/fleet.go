package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
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

	pools *poolFile // nil with --nodes
	taken contents  // of the file, as it was last taken

	// Not for several goroutines.
	nodes map[string]*fleetNode // those that are in the fleet
	left  map[string]struct{}   // that have left it, and whose Nodes are to be deleted
}

// run runs the nodes until ctx ends.
func (f *virtualFleet) run(ctx context.Context, began time.Time) (err error) {
	err = f.build()
	defer func() { err = errors.Join(err, f.closeProviders()) }()
	if err != nil {
		return err
	}
	fields := log.Fields{"nodes": len(f.nodes), "address": f.address}
	if f.pools != nil {
		fields["config"] = f.poolsFile
	} else {
		fields["name"], fields["provider"] = f.nodeName, f.options.provider
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
	names := slices.Sorted(maps.Keys(f.nodes))
	group.Go(func() error { return f.fleet.Run(ctx) })
	group.Go(func() error { return f.awaitReady(ctx, names, began) })
	if f.pools != nil {
		group.Go(func() error { f.follow(ctx); return nil })
	}
	return group.Wait()
}

// awaitReady says when the first nodes are all ready; the error is that they are
// not in time.
func (f *virtualFleet) awaitReady(ctx context.Context, names []string, began time.Time) error {
	starting, started := f.starting(ctx)
	defer started()
	for _, name := range names {
		n := f.fleet.Node(name)
		if n == nil {
			continue // the file has not got it any more
		}
		if err := n.WaitReady(starting, 0); err != nil {
			if starting.Err() == nil {
				continue // it has ended, which the log has told
			}
			return unlessStopped(ctx, fmt.Errorf("node %s: %w", name, err))
		}
	}
	log.G(ctx).WithFields(log.Fields{"nodes": len(names), "took": time.Since(began).Round(time.Millisecond).String()}).Info("All nodes are ready")
	return nil
}

// build makes the fleet and its nodes.
func (f *virtualFleet) build() error {
	wanted, err := f.wanted()
	if err != nil {
		return err
	}
	config := nodeutil.FleetConfig{
		Client:               f.client,
		Namespace:            f.namespace,
		InformerResyncPeriod: f.fullResyncPeriod,
		EventQPS:             f.eventQPS,
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
	f.flagz, f.nodes, f.left = f.flagValues(), map[string]*fleetNode{}, map[string]struct{}{}
	for _, n := range wanted {
		node, err := f.add(n)
		if err != nil {
			return err
		}
		f.nodes[n.Name] = node
	}
	return nil
}

// wanted are the nodes with which the fleet begins.
func (f *virtualFleet) wanted() ([]nodepools.Node, error) {
	if f.poolsFile == "" {
		return f.numbered()
	}
	f.pools = newPoolFile(f.options)
	wanted, read, err := f.pools.load(nil)
	if err != nil {
		return nil, usageError{err}
	}
	f.taken = read
	return wanted.Nodes, nil
}

// numbered are the nodes of --nodes.
func (o *options) numbered() ([]nodepools.Node, error) {
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
	return nodes, nil
}
