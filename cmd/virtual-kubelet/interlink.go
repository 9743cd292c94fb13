//go:build !chosen_providers || provider_interlink

package main

import (
	"io"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink"
)

func init() { providers["interlink"] = interlinkEntry }

var interlinkEntry = providerEntry{
	summary: "pods run by an interLink API server, and so by its plugin (Slurm, HTCondor, Docker and others)",
	config: `YAML, the InterLinkConfig.yaml of interLink's own virtual kubelet, all of whose
fields are taken (providers/interlink/README.md says what they do). Without
--provider-config it is read from the file that CONFIGPATH names. NODENAME and
POD_IP are the defaults of --nodename and of the node's address:

  InterlinkURL: https://interlink.example.org   # http://, https://, unix://
  InterlinkPort: 443
  VKTokenFile: /var/run/secrets/interlink/token
  TLS: {Enabled: true, CertFile: tls.crt, KeyFile: tls.key, CACertFile: ca.crt}
  Resources:
    CPU: 100
    Memory: 3000G
    Pods: 10000
    Accelerators:
    - {ResourceType: nvidia.com/gpu, Model: a100, Available: 8}
  NodeLabels: [site=example]
  NodeTaints:
  - {Key: site, Value: example, Effect: NoSchedule}
`,
	sample: interlink.Sample(),
	// Tokens are bound to pods; claims are refused.
	rights:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}},
	environment: providerEnvironment{nodeName: "NODENAME", config: "CONFIGPATH", address: "POD_IP"},
	check: func(config []byte) error {
		_, err := interlink.ParseConfig(config)
		return err
	},
	new: newInterlink,
}

func newInterlink(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := interlink.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	p, n, err := interlink.New(init.ProviderConfig, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, n, p.(io.Closer), nil
}
