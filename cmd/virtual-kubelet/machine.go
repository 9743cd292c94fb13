//go:build !chosen_providers || provider_machine

package main

import (
	"io"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

func init() { providers["machine"] = machineEntry }

var machineEntry = providerEntry{
	summary: "pods each in a machine of its own, which qemu or a command makes",
	config: `YAML or JSON; cluster, stateDir, and qemu.image or exec.command are required
(providers/machine/README.md has the rest):

  cluster: home
  stateDir: /var/lib/virtual-kubelet/machines
  qemu: {image: /srv/machine-image}
`,
	sample:          machine.Sample(),
	oneNode:         true,
	readsClusterUID: true,
	rights:          []rbacv1.PolicyRule{tokenRule}, // for volumes
	check: func(config []byte) error {
		_, err := machine.ParseConfig(config)
		return err
	},
	new: newMachine,
}

func newMachine(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := machine.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	p, n, err := machine.New(init.ProviderConfig, cfg, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, n, p.(io.Closer), nil // as New says
}
