//go:build !chosen_providers || provider_remote

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
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
	node, address, clusterDomain            string
	listen, certFile, keyFile, clientCAFile string
}

func newServeProviderCommand() *cobra.Command {
	var o serveProviderOptions
	command := &cobra.Command{
		Use:   "serve-provider",
		Short: "Serve a provider to a virtual kubelet in another process",
		Long:  serveProviderHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	flags := command.Flags()
	o.addTo(flags, "", "what runs the pods: "+strings.Join(servedProviders(), ", "))
	flags.StringVar(&o.node, "nodename", "", "name of the node whose pods it runs; others are refused")
	flags.StringVar(&o.address, "node-address", "", "address of this machine, for pods in its network (default: one of its own)")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "domain of the cluster's services")
	flags.StringVar(&o.listen, "listen", "", "where to listen: unix:///PATH, or ADDRESS:PORT")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "certificate to show, in PEM; it is read for each connection, as the next two are")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "its key")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "authorities that sign the certificates of virtual kubelets that may connect, and of nobody else")
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
	path, isSocket := strings.CutPrefix(o.listen, "unix://")
	files := []string{o.certFile, o.keyFile, o.clientCAFile}
	if isSocket {
		check(filepath.IsAbs(path), "--listen is %q: write unix:///PATH", o.listen)
		check(strings.Join(files, "") == "", "a unix socket has no certificates: leave out --tls-cert-file, --tls-private-key-file and --client-ca-file")
	} else {
		_, _, err := net.SplitHostPort(o.listen)
		check(err == nil, "--listen is %q: write unix:///PATH or ADDRESS:PORT", o.listen)
		check(!slices.Contains(files, ""), "--tls-cert-file, --tls-private-key-file and --client-ca-file are required for an address that is no unix socket")
	}
	return errors.Join(append(wrong, o.check())...)
}

// run serves until ctx ends.
func (o *serveProviderOptions) run(ctx context.Context, stderr io.Writer) (err error) {
	if err := o.complete(); err != nil {
		return usageError{err}
	}
	ctx, config, err := o.begin(ctx, stderr)
	if err != nil {
		return err
	}
	if o.address == "" {
		own, err := nodeaddress.Towards("")
		if err != nil {
			return fmt.Errorf("there is no address for the node: give --node-address: %w", err)
		}
		o.address = own.String()
	}
	listener, options, err := o.open(ctx)
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
	return s.Serve(ctx, listener, options...)
}

// open listens.
func (o *serveProviderOptions) open(ctx context.Context) (net.Listener, []grpc.ServerOption, error) {
	if path, ok := strings.CutPrefix(o.listen, "unix://"); ok {
		listener, err := server.Listen(path)
		if err != nil {
			return nil, nil, err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, nil, errors.Join(err, listener.Close())
		}
		return listener, nil, nil
	}
	if _, err := o.tls(); err != nil {
		return nil, nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot listen: %w", err)
	}
	current := &tls.Config{
		MinVersion:         tls.VersionTLS13, // GetConfigForClient has the rest
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.tls() },
	}
	return listener, []grpc.ServerOption{grpc.Creds(credentials.NewTLS(current))}, nil
}

// tls reads the files of certificates.
func (o *serveProviderOptions) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file and --tls-private-key-file cannot be used: %w", err)
	}
	authorities, err := os.ReadFile(o.clientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("--client-ca-file %s has no certificate in PEM", o.clientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}
