//go:build integration

package kubernetes_test

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// TestConformance runs the remote pods of the conformance kit as processes of a node of
// the remote cluster.
func TestConformance(t *testing.T) {
	remote := startCluster(t)
	startProcesses(t, remote)
	cfg := configOf(t, remoteOf(remote, remote.account("kubernetes-remote-rbac.yaml")), `
namespaces: {mapping: prefix, prefix: home-, create: true}
stats: kubelets
`)
	providertest.Suite{
		NewProvider:  newProvider(cfg),
		Capabilities: providertest.All(),
		ControlPlane: controlPlane,
		NodeName:     "providertest-kubernetes",
	}.Run(t)
}
