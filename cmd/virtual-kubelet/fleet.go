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
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// virtualFleet puts many nodes together, which differ in their names.
type virtualFleet struct {
	*options
	client  kubernetes.Interface
	address string
	auth    nodeutil.Auth

	flagz   map[string]string // for /flagz
	closers closers           // of the providers
}

// run runs the nodes until ctx ends.
func (f *virtualFleet) run(ctx context.Context, began time.Time) (err error) {
	fleet, err := f.build()
	defer func() { err = errors.Join(err, f.closers.Close()) }()
	if err != nil {
		return err
	}
	log.G(ctx).WithFields(log.Fields{"name": f.nodeName, "nodes": f.nodes, "provider": f.options.provider, "address": f.address}).Info("Starting nodes")
	group, ctx := errgroup.WithContext(ctx)
	if f.metricsAddr != "" {
		serve, err := f.metricsServer(ctx, fleet.ProcessHandler())
		if err != nil {
			return err
		}
		group.Go(func() error { return serve(ctx) })
	}
	group.Go(func() error { return fleet.Run(ctx) })
	group.Go(func() error { return f.awaitReady(ctx, fleet, began) })
	return group.Wait()
}

// awaitReady says when all nodes are ready; the error is that they are not in
// time.
func (f *virtualFleet) awaitReady(ctx context.Context, fleet *nodeutil.Fleet, began time.Time) error {
	starting, started := f.starting(ctx)
	defer started()
	for i := range f.nodes {
		name := f.name(i)
		if err := fleet.Node(name).WaitReady(starting, 0); err != nil {
			if starting.Err() == nil {
				continue // it has ended, which the log has told
			}
			return unlessStopped(ctx, fmt.Errorf("node %s: %w", name, err))
		}
	}
	log.G(ctx).WithFields(log.Fields{"nodes": f.nodes, "took": time.Since(began).Round(time.Millisecond).String()}).Info("All nodes are ready")
	return nil
}

// build makes the fleet and its nodes.
func (f *virtualFleet) build() (*nodeutil.Fleet, error) {
	providerConfig, err := readProviderConfig(f.providerConfig)
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	config.TLSConfig = serving.TLSConfig
	fleet, err := nodeutil.NewFleet(config)
	if err != nil {
		return nil, err
	}
	f.flagz = f.flagValues()
	for i := range f.nodes {
		if err := f.add(fleet, i, providerConfig); err != nil {
			return nil, err
		}
	}
	return fleet, nil
}

// add adds a node, by its number.
func (f *virtualFleet) add(fleet *nodeutil.Fleet, i int, providerConfig []byte) error {
	of := *f.options
	of.nodeName = f.name(i)
	if f.portPerNode && f.port != 0 {
		of.port = f.port + i
	}
	v := virtualNode{options: &of, client: f.client, address: f.address, auth: f.auth}
	config := v.config()
	config.Flags = f.flagz
	_, err := fleet.Add(of.nodeName, v.newProvider(providerConfig), nodeutil.WithNodeConfig(config))
	if v.closer != nil {
		f.closers = append(f.closers, io.Closer(v.closer))
	}
	return err
}

// name is the name of a node, by its number.
func (f *virtualFleet) name(i int) string { return f.nodeName + "-" + strconv.Itoa(i) }
