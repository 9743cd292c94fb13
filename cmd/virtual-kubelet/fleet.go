package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/fleet"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/idlememory"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// runFleet runs the nodes of --nodes or --config until ctx ends.
func (v *virtualNode) runFleet(ctx context.Context, began time.Time) (err error) {
	config, err := v.fleetConfig()
	if err != nil {
		return err
	}
	nodes, err := fleet.New(ctx, config)
	if wrong, ok := errors.AsType[*fleet.FileError](err); ok {
		return usageError{wrong.Err}
	}
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	fields := log.Fields{"address": v.address}
	if v.shards > 0 {
		fields["shards"] = v.shards
	} else {
		fields["nodes"] = nodes.Wanted()
	}
	if v.poolsFile != "" {
		fields["config"] = v.poolsFile
	} else {
		fields["name"], fields["provider"] = v.nodeName, v.options.provider
	}
	log.G(ctx).WithFields(fields).Info("Starting nodes")

	v.standby.use(nodes.ProcessHandler())
	if err := v.metrics.open(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return nodes.Run(ctx) })
	if v.shards == 0 {
		group.Go(func() error { return v.awaitNodes(ctx, nodes, began) })
	}
	return group.Wait()
}

const (
	// settling is how long nodes that have become ready still make garbage of their start.
	settling = 15 * time.Second
	// longestStart bounds for how long the heap is kept small for nodes that start: some may never be ready.
	longestStart = time.Minute
)

// awaitNodes logs when the first nodes are all ready. It returns an error if they are not
// in time.
func (v *virtualNode) awaitNodes(ctx context.Context, nodes *fleet.Fleet, began time.Time) error {
	usual := idlememory.Sparingly()
	time.AfterFunc(longestStart, usual)
	defer time.AfterFunc(settling, usual)
	starting, started := v.starting(ctx, began)
	defer started()
	names, err := nodes.Made(starting)
	if err != nil {
		return unlessStopped(ctx, fmt.Errorf("some providers are still waited for: %w", err))
	}
	for _, name := range names {
		n := nodes.Node(name)
		if n == nil {
			continue // the file no longer has it
		}
		logged := log.WithLogger(starting, log.G(starting).WithField("node", name))
		if err := awaitCondition(logged, n); err != nil {
			return unlessStopped(ctx, fmt.Errorf("node %s: %w", name, err))
		}
	}
	log.G(ctx).WithFields(log.Fields{"nodes": len(names), "took": time.Since(began).Round(time.Millisecond).String()}).Info("All nodes are ready")
	return nil
}

// fleetConfig returns the configuration of the nodes of --nodes or --config.
func (v *virtualNode) fleetConfig() (fleet.Config, error) {
	flags := v.flagValues()
	config := fleet.Config{
		Nodes: nodeutil.FleetConfig{
			Client:               v.client,
			Namespace:            v.namespace,
			InformerResyncPeriod: v.fullResyncPeriod,
			EventQPS:             v.eventQPS,
			EventSource:          v.eventSource,
			EventBurst:           v.eventBurst,
			Auth:                 v.auth,
			HTTPListenAddr:       net.JoinHostPort(v.listenAddress, strconv.Itoa(v.port)),
			PortPerNode:          v.portPerNode,
			DebugHTTP:            v.debugHTTP,
		},
		NodeConfig: func(n nodepools.Node, adopt bool) (nodeutil.NodeConfig, error) {
			one := v.as(n)
			config := one.config()
			config.HTTPListenAddr = net.JoinHostPort(v.listenAddress, strconv.Itoa(n.Port))
			config.Flags = flags
			var err error
			config.Claim, err = one.newClaim(adopt)
			return config, err
		},
		NewProvider: func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			var content []byte
			if n.ProviderConfig != "" {
				content = []byte(n.ProviderConfig)
			}
			return v.as(n).makeProvider(ctx, content, cfg)
		},
		Shards:             v.sharding(v.client),
		NotReadyAtShutdown: v.notReadyAtEnd,
	}
	var serving nodeutil.NodeConfig
	options := v.servingOptions()
	if len(options) == 0 { // a self-signed certificate, for the address that all nodes have
		address := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: v.address}
		options = append(options, nodeutil.WithTLSConfig(nodeutil.WithSelfSignedCertificate("virtual-kubelet", []corev1.NodeAddress{address})))
	}
	for _, opt := range options {
		if err := opt(&serving); err != nil {
			return config, err
		}
	}
	config.Nodes.TLSConfig = serving.TLSConfig
	if v.poolsFile != "" {
		config.File = newPoolFile(v.options)
		return config, nil
	}
	var err error
	config.Fixed, err = v.numberedNodes()
	return config, err
}

// as returns the same process with the name, operating system and provider of a node.
func (v *virtualNode) as(n nodepools.Node) *virtualNode {
	options := *v.options
	options.nodeName, options.os, options.provider = n.Name, n.OS, n.Provider
	return &virtualNode{options: &options, client: v.client, address: v.address, auth: v.auth}
}

// numberedNodes returns the nodes of --nodes.
func (o *options) numberedNodes() (*nodepools.Wanted, error) {
	config, err := o.configOfProvider()
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

// newPoolFile returns the file of --config.
func newPoolFile(o *options) *fleet.File { return fleet.NewFile(o.poolOptions(), poolsIn) }

// poolOptions returns the file of --config, and the defaults of its pools.
func (o *options) poolOptions() nodepools.Options {
	pools := nodepools.Options{
		File:        o.poolsFile,
		Kinds:       []string{configurationKind},
		Providers:   map[string]nodepools.Provider{},
		OS:          o.os,
		Provider:    o.provider,
		Taints:      o.taints,
		PortPerNode: o.portPerNode,
	}
	for name, entry := range providers {
		pools.Providers[name] = nodepools.Provider{OneNode: entry.oneNode, Check: entry.check}
	}
	if o.providerConfig != "" {
		pools.Config = absolute(o.providerConfig) // a relative one would be from the directory of the file on
	} else {
		pools.Inline = o.providerInline
	}
	return pools
}

// poolRights returns what the file wants as far as rights depend on it. The providers'
// configurations, which may not be here, are not read.
func poolRights(file, provider string) (*nodepools.Wanted, error) {
	pools := (&options{poolsFile: file, provider: provider, portPerNode: true}).poolOptions()
	pools.ReadFile = func(string) ([]byte, error) { return nil, nil }
	for name, known := range pools.Providers {
		known.Check = func([]byte) error { return nil }
		pools.Providers[name] = known
	}
	return fleet.NewFile(pools, poolsIn).Load()
}
