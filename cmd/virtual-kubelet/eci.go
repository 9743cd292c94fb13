//go:build !chosen_providers || provider_eci

package main

import (
	"cmp"
	"io"
	"os"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci"
)

func init() { providers["eci"] = eciEntry }

var eciEntry = providerEntry{
	summary: "pods in container groups of Alibaba Cloud Elastic Container Instance",
	config: `TOML or YAML; the environment variables ECI_CLUSTER_NAME, ECI_REGION,
ECI_ACCESS_KEY, ECI_SECRET_KEY, ECI_SECURITY_GROUP, ECI_VSWITCH, ECI_QUOTA_CPU,
ECI_QUOTA_MEMORY and ECI_QUOTA_POD go before it, and may be all there is
(providers/eci/README.md has the rest, such as roles instead of keys):

  ClusterName = "home"
  Region = "cn-hangzhou"
  SecureGroup = "sg-..."
  VSwitch = "vsw-..."
  OperatingSystem = "Linux"
  CPU = "1000"
  Memory = "4Ti"
  Pods = "1000"
`,
	sample:          eci.Sample(),
	readsClusterUID: true,
	mountsVolumes:   true,
	check: func(config []byte) error {
		_, err := eci.ParseConfig(config)
		return err
	},
	new: newECI,
}

// eciBudget is the one of all nodes of the process, which may have the same account.
var eciBudget = sync.OnceValue(eci.NewBudget)

func newECI(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := eci.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cfg.Merge(os.Getenv); err != nil {
		return nil, nil, nil, err
	}
	cfg.Budget = eciBudget()
	cfg.ClusterDomain = cmp.Or(cfg.ClusterDomain, init.ClusterDomain)
	p, err := eci.New(init.ProviderConfig, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, p, p, nil
}
