//go:build !chosen_providers || provider_kubernetes

package main

import (
	"context"
	"io"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

func init() { providers["kubernetes"] = kubernetesEntry }

var kubernetesEntry = providerEntry{
	summary: "pods in another Kubernetes cluster",
	config: `YAML (providers/kubernetes/README.md has all fields); --provider-config is
required:

  apiVersion: kubernetes.virtual-kubelet.io/v1
  kind: RemoteCluster
  cluster: home
  remote: {kubeconfig: FILE}
  namespaces: {mapping: same}
  capacity: {source: fixed, resources: {cpu: "20", memory: 100Gi, pods: "110"}}
`,
	sample: (*kubernetes.Provider)(nil),
	// Remote pods have the tokens of their service accounts at home.
	readsClusterUID: true,
	rights:          []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}},
	check: func(config []byte) error {
		_, err := kubernetes.ParseConfig(config)
		return err
	},
	new: newKubernetes,
}

func newKubernetes(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := kubernetes.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := kubernetes.New(context.Background(), init.ProviderConfig, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, p, p, nil
}
