//go:build integration

package remote_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

func TestMain(m *testing.M) {
	runtime.MaybeShim() // this program is started for each container
	os.Exit(m.Run())
}

// A pod engine behind the protocol, which knows no cluster, has volumes and environments as the
// virtual kubelet sends them.
func TestProcessBehindTheProtocol(t *testing.T) {
	t.Parallel()
	const name = "providertest-remote-process"
	root, err := os.MkdirTemp("", "providertest-remote-") // through which all users can pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	var address string
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			if address == "" {
				far := machine.Node{Name: name, ClusterDomain: "cluster.local", Sent: true}
				far.Node, far.HostIPs = init.Node.DeepCopy(), init.HostIPs
				config := process.Config{}
				config.Root, config.Runtime.SharedNetwork, config.EvictionHard = root, true, map[string]string{}
				config.CgroupParent = "/" + name + "-" + strconv.Itoa(os.Getpid())
				p, err := process.New(context.Background(), far, config)
				if err != nil {
					return nil, nil, err
				}
				t.Cleanup(func() { _ = p.Close() })
				address = serve(t, server.New(t.Context(), nodeutil.AsProvider(p), p, server.Options{Name: "process", Node: far.Node}))
			}
			return remote.New(context.Background(), init, remote.Config{Address: address})
		},
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward, providertest.Stats,
			providertest.Volumes, providertest.Tokens, providertest.InitContainers, providertest.Sidecars, providertest.Restarts,
			providertest.Probes, providertest.Hooks, providertest.SurvivesRestart,
		},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     name,
		Skip:         map[string]string{"liveness-probe": "the engine's events, of which it wants one, go to the log of its process"},
		Shell:        []string{"sh", "-c", `sleep 0.3; exec sh -c "$0" "$@"`}, // it begins a moment after its container
	}.Run(t)
}
