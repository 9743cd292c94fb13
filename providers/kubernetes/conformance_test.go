//go:build integration

package kubernetes_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// TestConformance runs the remote pods of the conformance kit as processes of a node of
// the remote cluster.
func TestConformance(t *testing.T) {
	remote := startCluster(t)
	root, err := os.MkdirTemp("", "remote-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil { // processes run as nobody
		t.Fatal(err)
	}
	startNode(t, remote.client, "remote-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		var config process.Config
		config.Root = root
		config.Runtime.Isolation = runtime.IsolationNamespaces
		config.Runtime.SharedNetwork = true
		config.CgroupParent = "/remote-" + strconv.Itoa(os.Getpid())
		p, err := process.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: cfg.Node.Name, ClusterDomain: "cluster.local"}, config)
		return nodeutil.AsProvider(p), p, err
	}, func(cfg *nodeutil.NodeConfig) error {
		cfg.SkipDownwardAPIResolution = true
		return nil
	})
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
