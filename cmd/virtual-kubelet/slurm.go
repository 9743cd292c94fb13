//go:build !chosen_providers || provider_slurm

package main

import (
	"io"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm"
)

func init() { providers["slurm"] = slurmEntry }

var slurmEntry = providerEntry{
	summary: "pods as jobs of a Slurm cluster, with its commands here or by ssh",
	config: `YAML or JSON; cluster is required (providers/slurm/README.md has the rest):

  cluster: home
  root: /shared/home/me/pods
  ssh: {host: login.example.com, user: me}
  partition: batch
  account: project
  runtime: apptainer
  hostPaths: [/scratch]
`,
	sample:          slurm.Sample(),
	readsClusterUID: true,
	check: func(config []byte) error {
		_, err := slurm.ParseConfig(config)
		return err
	},
	new: newSlurm,
}

func newSlurm(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := slurm.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	p, n, err := slurm.New(init.ProviderConfig, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, n, p.(io.Closer), nil // as New says
}
