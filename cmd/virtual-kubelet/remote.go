//go:build !chosen_providers || provider_remote

package main

import (
	"io"
	"net"
	"net/netip"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

func init() { providers["remote"] = remoteEntry }

var remoteEntry = providerEntry{
	summary: "pods handed to a provider that is a process of its own, in any language",
	config: `YAML or JSON; address is required (providers/remote/README.md has the rest):

  address: unix:///run/provider/provider.sock

or

  address: provider.example.com:9443
  tls: {caFile: ca.crt, certFile: tls.crt, keyFile: tls.key}
`,
	sample:          (*remote.Provider)(nil),
	readsClusterUID: true,
	rights:          []rbacv1.PolicyRule{tokenRule}, // for volumes, where the provider takes them
	check: func(config []byte) error {
		_, err := remote.ParseConfig(config)
		return err
	},
	here: func(config []byte) bool {
		cfg, _ := remote.ParseConfig(config) // what is wrong with it newRemote says
		host, _, _ := net.SplitHostPort(cfg.Address)
		ip, _ := netip.ParseAddr(host)
		return strings.HasPrefix(cfg.Address, "unix://") || host == "localhost" || ip.IsLoopback()
	},
	new: newRemote,
}

func newRemote(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := remote.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	p, n, err := remote.New(init.ctx, init.ProviderConfig, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, n, p.(io.Closer), nil // as New says
}
