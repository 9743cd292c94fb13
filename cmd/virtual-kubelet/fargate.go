//go:build !chosen_providers || provider_fargate

package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate"
)

func init() { providers["fargate"] = fargateEntry }

// fargateAccount is the one of all nodes of the process, which may have the same account.
var fargateAccount = sync.OnceValue(fargate.NewAccount)

var fargateEntry = providerEntry{
	summary: "pods as tasks of Amazon ECS on AWS Fargate",
	config: `YAML, or TOML as for the provider that this one replaces; credentials, and
the region if it is not here, by the chain of AWS's tools: environment, profile,
role of the service account or of the machine (providers/fargate/README.md has
the rest):

  region: eu-west-1
  clusterName: pods
  subnets: [subnet-12345678]
  securityGroups: [sg-12345678]
  executionRoleArn: arn:aws:iam::123456789012:role/ecsTaskExecutionRole
  cloudWatchLogGroupName: pods
  cpu: 20
  memory: 40Gi
  pods: 20
`,
	sample:          fargate.Sample(),
	readsClusterUID: true,
	check: func(config []byte) error {
		cfg, err := fargate.ParseConfig(config)
		if err != nil {
			return err
		}
		return cfg.Complete()
	},
	new: func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		cfg, err := fargate.ParseConfig(init.Config)
		if err != nil {
			return nil, nil, nil, err
		}
		account, err := awsAccount()
		if err != nil {
			return nil, nil, nil, err
		}
		cfg.Account = fargateAccount()
		p, err := fargate.New(init.ProviderConfig, cfg, account)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("fargate: %w", err)
		}
		return p, p, p, nil
	},
}
