//go:build containers

package providertest_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

// Containers of a containerd can do all.
func TestCRI(t *testing.T) {
	runtime := startContainerd(t)
	providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			var config cri.Config
			config.Endpoint = runtime.Endpoint()
			config.Root = filepath.Join(runtime.Dir(), "pods") // unmounted and removed with the rest
			config.CgroupParent = "/providertest-cri-" + strconv.Itoa(os.Getpid())
			config.EvictionHard = map[string]string{} // regardless of the free space of the machine's disk
			p, err := cri.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: cfg.Node.Name, ClusterDomain: "cluster.local"}, config)
			if err != nil {
				return nil, nil, err
			}
			return nodeutil.AsProvider(p), p, nil
		},
		Capabilities: providertest.All(),
		ControlPlane: filepath.Join(bin, "controlplane"),
		NodeName:     "providertest-cri",
		NodeOptions:  []nodeutil.NodeOpt{resolvesItself},
		Directories:  []string{filepath.Join(runtime.Dir(), "pods")},
		Image:        "registry.k8s.io/e2e-test-images/agnhost:2.63.0", // with nc
	}.Run(t)
}

func startContainerd(t *testing.T) *containerd.Containerd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := containerd.Start(ctx, containerd.Options{
		Binary:       filepath.Join(bin, "containerd-up"),
		SandboxImage: "localhost/pause:latest",
		Images:       []string{filepath.Join(bin, "conformance", "images.tar")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}
