//go:build !chosen_providers || provider_nomad

package main

import (
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad"
)

func init() { providers["nomad"] = nomadEntry }

var nomadEntry = providerEntry{
	summary: "pods as jobs of HashiCorp Nomad",
	config: `YAML; the environment variables of the Nomad CLI (NOMAD_ADDR, NOMAD_REGION,
NOMAD_NAMESPACE, NOMAD_TOKEN, NOMAD_CACERT, NOMAD_CAPATH, NOMAD_CLIENT_CERT,
NOMAD_CLIENT_KEY, NOMAD_TLS_SERVER_NAME, NOMAD_SKIP_VERIFY) go before it, and may
be all there is (providers/nomad/README.md has the rest):

  address: https://nomad.example:4646
  caCert: /etc/nomad/ca.pem
  clusterName: home
  datacenters: [dc1]
  driver: docker
`,
	sample:          nomad.Sample(),
	readsClusterUID: true,
	check: func(config []byte) error {
		_, err := nomad.ParseConfig(config)
		return err
	},
	new: newNomad,
}

func newNomad(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := nomad.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cfg.Merge(os.Getenv); err != nil {
		return nil, nil, nil, err
	}
	p, n, err := nomad.New(init.ProviderConfig, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, n, p.(io.Closer), nil // as New says
}
