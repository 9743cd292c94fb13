//go:build integration

package remote_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// The mock provider passes behind the protocol what it passes in the same process. It
// goes on while the node ends and begins again.
func TestMockBehindTheProtocol(t *testing.T) {
	t.Parallel()
	const name = "providertest-remote"
	var address string
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			if address == "" {
				p, err := mock.New(mock.Config{NodeName: name, HostIP: init.HostIPs()[0]})
				if err != nil {
					return nil, nil, err
				}
				t.Cleanup(func() { _ = p.Close() })
				far := init.Node.DeepCopy()
				p.ConfigureNode(t.Context(), far)
				address = serve(t, server.New(t.Context(), p, p, server.Options{Name: "mock", Node: far}))
			}
			return remote.New(context.Background(), init, remote.Config{Address: address})
		},
		Capabilities: []providertest.Capability{
			providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward, providertest.Stats,
			providertest.Deadlines, providertest.EphemeralContainers, providertest.SurvivesRestart,
		},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     name,
	}.Run(t)
}
