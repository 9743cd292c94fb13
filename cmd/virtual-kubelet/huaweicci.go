//go:build !chosen_providers || provider_huaweicci

package main

import (
	"context"
	"io"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/huaweicci"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

func init() { providers["huaweicci"] = huaweicciEntry }

var huaweicciEntry = providerEntry{
	summary: "pods of Huawei Cloud Container Instance",
	config: `YAML or TOML (providers/huaweicci/README.md has all fields); the environment
variables CCI_APP_KEY and CCI_APP_SECRET have the access key:

  Project: default            # the namespace in CCI
  Region: cn-north-4
  API: v2                     # CCI 2.0; v1 is CCI 1
  Cluster: home
  CPU: 20
  Memory: 100Gi
  Pods: 20
`,
	sample: (*kubernetes.Provider)(nil),
	// Pods in CCI have the tokens of their service accounts at home.
	readsClusterUID: true,
	rights:          []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}},
	check: func(config []byte) error {
		cfg, err := huaweicci.ParseConfig(config)
		if err != nil {
			return err
		}
		return cfg.Check()
	},
	new: func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		cfg, err := huaweicci.ParseConfig(init.Config)
		if err != nil {
			return nil, nil, nil, err
		}
		cfg.Merge(os.Getenv)
		p, err := huaweicci.New(context.Background(), init.ProviderConfig, cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		return p, p, p, nil
	},
}
