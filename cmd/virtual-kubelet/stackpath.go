//go:build !chosen_providers || provider_stackpath

package main

import (
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/stackpath"
)

func init() { providers["stackpath"] = stackpathEntry }

var stackpathEntry = providerEntry{
	summary: "pods as workloads of StackPath Edge Compute, a service that has ended",
	config: `YAML; the environment variables SP_STACK_ID, SP_CLIENT_ID, SP_CLIENT_SECRET,
SP_API_HOST and SP_CITY_CODE go before it, and SP_CONFIG_LOCATION names it:

  stack_id: 3e651d2e-b1f4-44ad-b21a-ebcd0bf79ca1
  client_id: ...
  client_secret: ...
  city_code: DFW
`,
	sample:          stackpath.Sample(),
	readsClusterUID: true,
	environment:     providerEnvironment{config: "SP_CONFIG_LOCATION"},
	check: func(config []byte) error {
		_, err := stackpath.ParseConfig(config)
		return err
	},
	new: func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		cfg, err := stackpath.ParseConfig(init.Config)
		if err != nil {
			return nil, nil, nil, err
		}
		if err := cfg.Merge(os.Getenv); err != nil {
			return nil, nil, nil, err
		}
		p, n, err := stackpath.New(init.ProviderConfig, cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		return p, n, p.(io.Closer), nil // as New says
	},
}
