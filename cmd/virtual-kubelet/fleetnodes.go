package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// fleetNode is a node that is in the fleet.
type fleetNode struct {
	nodepools.Node // as it was wanted
	said           *poolNode
	closer         io.Closer // of its provider; may be nil
}

func (n *fleetNode) close() error {
	if n.closer == nil {
		return nil
	}
	return n.closer.Close()
}

// add adds a node to the fleet, unless ctx has ended when its provider is made:
// then the node may be another process's already. With adopt its Node may be that of
// another provider.
func (f *virtualFleet) add(ctx context.Context, n nodepools.Node, adopt bool) (*fleetNode, error) {
	of := *f.options
	of.nodeName, of.os, of.provider = n.Name, n.OS, n.Provider
	v := virtualNode{options: &of, client: f.client, address: f.address, auth: f.auth}
	config := v.config()
	config.NodeSpec.Spec.Taints = nil // the pool has them
	config.HTTPListenAddr = net.JoinHostPort(f.listenAddress, strconv.Itoa(n.Port))
	config.Flags = f.flagz
	var err error
	if config.Claim, err = v.newClaim(adopt); err != nil {
		return nil, err
	}
	var content []byte
	if n.ProviderConfig != "" {
		content = []byte(n.ProviderConfig)
	}
	said := &poolNode{overlay: n.Overlay}
	newProvider := func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		provider, nodeProvider, err := v.newProvider(content)(cfg)
		if err == nil {
			err = context.Cause(ctx)
		}
		return provider, nodeProvider, err
	}
	_, err = f.fleet.Add(n.Name, said.making(newProvider), nodeutil.WithNodeConfig(config))
	added := &fleetNode{Node: n, said: said, closer: v.closer}
	if err != nil {
		return nil, errors.Join(err, added.close())
	}
	return added, nil
}

// maxRemovals is how many nodes say goodbye at the same time.
const maxRemovals = 50

// remove takes nodes out of the fleet, and ends their providers. A node that is
// still ending because ctx did stays in f.nodes.
func (f *virtualFleet) remove(ctx context.Context, names []string, opts ...nodeutil.RemoveOption) error {
	errs := make([]error, len(names))
	var removing errgroup.Group
	removing.SetLimit(maxRemovals)
	for i, name := range names {
		of := f.nodes[name]
		removing.Go(func() error {
			errs[i] = f.fleet.Remove(ctx, name, opts...)
			if f.fleet.Node(name) == nil {
				errs[i] = errors.Join(errs[i], of.close())
			}
			return nil
		})
	}
	_ = removing.Wait() // the errors are in errs
	for _, name := range names {
		if f.fleet.Node(name) == nil {
			delete(f.nodes, name)
		}
	}
	return errors.Join(errs...)
}

// closeProviders ends the providers of all nodes.
func (f *virtualFleet) closeProviders() error {
	var errs []error
	for _, n := range f.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
