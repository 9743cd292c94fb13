//go:build !chosen_providers || provider_azurebatch

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch"
)

func init() { providers["azurebatch"] = azurebatchEntry }

var azurebatchEntry = providerEntry{
	summary: "pods as tasks of Azure Batch",
	config: `YAML or TOML; the environment variables AZURE_BATCH_ACCOUNT_NAME,
AZURE_BATCH_ACCOUNT_LOCATION, AZURE_BATCH_POOLID, AZURE_BATCH_JOBID, AZURE_CLIENT_ID
and so on go before it, and may be all there is (providers/azurebatch/README.md
has the rest):

  accountName: account
  accountLocation: westeurope
  poolID: pool
  clusterName: home
`,
	sample:          azurebatch.Sample(),
	readsClusterUID: true,
	check: func(config []byte) error {
		_, err := azurebatch.ParseConfig(config)
		return err
	},
	new: func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		cfg, err := azurebatch.ParseConfig(init.Config)
		if err == nil {
			err = cfg.Merge(os.Getenv)
		}
		if file := os.Getenv(azurebatch.CredentialsFile); err == nil && file != "" {
			var data []byte
			if data, err = os.ReadFile(file); err == nil { // #nosec G304 G703 -- the operator names it
				err = cfg.MergeCredentials(data)
			}
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("azurebatch: %w", err)
		}
		p, err := azurebatch.New(init.ProviderConfig, cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		return p, p, p, nil
	},
}
