//go:build !chosen_providers || provider_aci

package main

import (
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci"
)

func init() { providers["aci"] = aciEntry }

var aciEntry = providerEntry{
	summary: "pods as container groups of Azure Container Instances",
	config: `YAML or TOML; environment variables (ACI_RESOURCE_GROUP, ACI_REGION,
AZURE_SUBSCRIPTION_ID, AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET,
AKS_CREDENTIAL_LOCATION and so on) go before it, and may be all there is
(providers/aci/README.md has the rest):

  subscriptionID: 00000000-0000-0000-0000-000000000000
  resourceGroup: aci
  region: westeurope
  clusterName: home
  vnetName: net               # with a subnet delegated to container groups;
  subnetName: groups          # without one groups with ports are public
  kubeDNSIP: 10.0.0.10
`,
	sample:          aci.Sample(),
	readsClusterUID: true,
	check: func(config []byte) error {
		_, err := aci.ParseConfig(config)
		return err
	},
	new: func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		cfg, err := aci.ParseConfig(init.Config)
		if err == nil {
			err = cfg.Merge(os.Getenv)
		}
		if err == nil {
			err = cfg.ReadCredentials(os.ReadFile)
		}
		if err != nil {
			return nil, nil, nil, err
		}
		p, err := aci.New(init.ProviderConfig, cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		return p, p, p, nil
	},
}
