//go:build !chosen_providers || provider_zun

package main

import (
	"io"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun"
)

func init() { providers["zun"] = zunEntry }

var zunEntry = providerEntry{
	summary: "pods as capsules of OpenStack Zun",
	config: `YAML or TOML; the environment variables of OpenStack's clients (OS_CLOUD,
OS_AUTH_URL, OS_USERNAME, OS_PASSWORD, OS_PROJECT_NAME, OS_DOMAIN_ID,
OS_REGION_NAME and so on) go before it, and may be all there is
(providers/zun/README.md has the rest):

  cloud: lab                  # in clouds.yaml
  clusterName: home
  cpu: 20
  memory: 100Gi
  pods: 20
`,
	sample:          zun.Sample(),
	readsClusterUID: true,
	check: func(config []byte) error {
		_, err := zun.ParseConfig(config)
		return err
	},
	new: func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		cfg, err := zun.ParseConfig(init.Config)
		if err == nil {
			err = cfg.Merge(os.Getenv)
		}
		if err != nil {
			return nil, nil, nil, err
		}
		p, err := zun.New(init.ProviderConfig, cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		return p, p, p, nil
	},
}
