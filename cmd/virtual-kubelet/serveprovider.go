//go:build !chosen_providers || provider_remote

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
	"github.com/virtual-kubelet/virtual-kubelet/internal/nodeaddress"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

func init() { commands = append(commands, newServeProviderCommand) }

const serveProviderHelp = `Serve a provider to a virtual kubelet with --provider remote, in another process or on
another machine (providers/remote/README.md). It needs no cluster: pods come with what is
in their environments and volumes. Who can connect can read Secrets, and run pods: the
socket's file is for its user alone, and over TCP both sides show certificates.`

// serveProviderOptions are the values of the flags.
type serveProviderOptions struct {
	providerFlags
	listenFlags
	node, address, clusterDomain string
}

func newServeProviderCommand() *cobra.Command {
	var o serveProviderOptions
	command := &cobra.Command{
		Use:   "serve-provider",
		Short: "Serve a provider to a virtual kubelet in another process",
		Long:  serveProviderHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(o.withLog(cmd.Context(), cmd.ErrOrStderr())) },
	}
	flags := command.Flags()
	o.providerFlags.addTo(flags, "", "what runs the pods: "+strings.Join(servedProviders(), ", "))
	flags.StringVar(&o.node, "nodename", "", "name of the node whose pods it runs; others are refused")
	flags.StringVar(&o.address, "node-address", "", "address of this machine, for pods in its network (default: one of its own)")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "domain of the cluster's services")
	o.listenFlags.addTo(flags)
	return command
}

// servedProviders are the names of those that can be served.
func servedProviders() []string {
	return slices.DeleteFunc(providerNames(), func(name string) bool { return !providers[name].served })
}

// complete checks the values.
func (o *serveProviderOptions) complete() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(providers[o.provider].served, "--provider is %q: give one of %s", o.provider, strings.Join(servedProviders(), ", "))
	check(o.node != "", "--nodename is missing: give the name of the node whose pods it is to run")
	check(o.address == "" || net.ParseIP(o.address) != nil, "--node-address is %q, which is no IP address", o.address)
	return errors.Join(append(wrong, o.listenFlags.check(false), o.providerFlags.check())...)
}

// run serves until ctx ends.
func (o *serveProviderOptions) run(ctx context.Context) (err error) {
	if err := o.complete(); err != nil {
		return usageError{err}
	}
	config, err := readProviderConfig(o.providerConfig)
	if err != nil {
		return err
	}
	if o.address == "" {
		own, err := nodeaddress.Own()
		if err != nil {
			return fmt.Errorf("there is no address for the node: give --node-address: %w", err)
		}
		o.address = own.String()
	}
	listener, err := o.open(ctx, "h2")
	if err != nil {
		return err
	}
	defer listener.Close()
	n := &corev1.Node{}
	n.Name, n.Labels, n.Annotations = o.node, map[string]string{}, map[string]string{}
	provider, nodeProvider, closer, err := providers[o.provider].new(providerInit{
		ctx: ctx, ProviderConfig: nodeutil.ProviderConfig{Node: n, HostIPs: func() []string { return []string{o.address} }},
		NodeName: o.node, OS: "linux", InternalIP: o.address, ClusterDomain: o.clusterDomain, Config: config, sent: true,
	})
	if err != nil {
		return err
	}
	if closer != nil {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	s := server.New(ctx, provider, nodeProvider, server.Options{Name: o.provider, Version: buildinfo.Get().Version, Node: n})
	log.G(ctx).WithFields(log.Fields{"provider": o.provider, "node": o.node, "address": o.listen}).Info("Serving the provider")
	return s.Serve(ctx, listener)
}
