package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// Options are what an agent runs with.
type Options struct {
	Bootstrap Bootstrap
	// Key is the agent's key in PEM (NewKey), which was made in this machine, has never left it,
	// and is the same when the agent starts again. Required.
	Key []byte
	// Listen is the address and port at which the agent listens. Defaults to the Bootstrap's port
	// of all addresses.
	Listen string
	// NewProvider makes what runs the pod, once the node has given the machine a certificate. It
	// completes init.Node; of the rest of init there only is HostIPs: nothing is known here of a
	// cluster. The io.Closer, if it is not nil, is closed at the end. Required.
	NewProvider func(ctx context.Context, init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error)
	// Name and Version are those of the provider, for logs.
	Name, Version string
}

// Run gets a certificate and serves the provider, until ctx ends.
func Run(ctx context.Context, o Options) (err error) {
	id, err := newIdentity(o.Bootstrap, o.Key)
	if err != nil {
		return err
	}
	answer, err := id.obtain(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	log.G(ctx).WithFields(log.Fields{"machine": o.Bootstrap.Machine, "node": o.Bootstrap.Node}).Info("The node knows this machine")
	if o.Listen == "" {
		o.Listen = fmt.Sprintf(":%d", o.Bootstrap.Port)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("the agent cannot listen: %w", err)
	}
	defer listener.Close()
	n := &corev1.Node{}
	n.Name, n.Labels, n.Annotations = o.Bootstrap.Node, map[string]string{}, map[string]string{}
	provider, nodeProvider, closer, err := o.NewProvider(ctx, nodeutil.ProviderConfig{Node: n, HostIPs: func() []string { return addresses(answer.Address) }})
	if closer != nil {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	if err != nil {
		return fmt.Errorf("the agent cannot run pods: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	s := server.New(ctx, provider, nodeProvider, server.Options{Name: o.Name, Version: o.Version, Node: n})
	group.Go(func() error { return id.renew(ctx, answer) })
	group.Go(func() error { return s.Serve(ctx, listener, grpc.Creds(id.credentials())) })
	return group.Wait()
}

// addresses are those of the machine: as the node knows it, or else its own.
func addresses(known string) []string {
	if known != "" {
		return []string{known}
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range found {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return []string{ip.IP.String()}
		}
	}
	return nil
}
