//go:build !chosen_providers || provider_machine

package main

import (
	"io"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/ec2"
)

func init() { providers["machine"] = machineEntry }

var machineEntry = providerEntry{
	summary: "pods each in a machine of its own, which qemu, Amazon EC2 or a command makes",
	config: `YAML or JSON; cluster, stateDir, and qemu.image, exec.command or ec2 are required
(providers/machine/README.md and providers/machine/ec2/README.md have the rest):

  cluster: home
  stateDir: /var/lib/virtual-kubelet/machines
  qemu: {image: /srv/machine-image}

or, with credentials by the chain of AWS's tools, instances of Amazon EC2:

  cluster: home
  stateDir: /var/lib/virtual-kubelet/machines
  bootstrap: {url: "https://10.0.0.5:10271"}
  types:
  - {name: m7i.large, cpu: 1800m, memory: 6Gi}
  ec2:
    region: eu-west-1
    imageID: ami-0123456789abcdef0
    subnets: [subnet-0123456789abcdef0]
    securityGroups: [sg-0123456789abcdef0]
`,
	sample:          machine.Sample(),
	oneNode:         true,
	readsClusterUID: true,
	rights:          []rbacv1.PolicyRule{tokenRule}, // for volumes
	check: func(config []byte) error {
		_, err := machine.ParseConfigWith(config, ec2.Check)
		return err
	},
	new: newMachine,
}

func newMachine(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := machine.ParseConfigWith(init.Config, ec2.Check)
	if err != nil {
		return nil, nil, nil, err
	}
	var driver machine.Driver // nil is the one of cfg
	if len(cfg.EC2) > 0 {
		account, err := awsAccount()
		if err != nil {
			return nil, nil, nil, err
		}
		if driver, err = ec2.New(cfg, account); err != nil {
			return nil, nil, nil, err
		}
	}
	p, n, err := machine.New(init.ProviderConfig, cfg, driver)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, n, p.(io.Closer), nil // as New says
}
