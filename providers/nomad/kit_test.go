//go:build integration

package nomad

import (
	"path/filepath"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// On a real Nomad, with containers of Docker.
func TestKit(t *testing.T) {
	t.Parallel()
	n := startNomad(t, "")
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := New(init, Config{Address: n.address, ClusterName: "providertest", Network: networkHost})
			if err != nil {
				return nil, nil, err
			}
			return nodeutil.AsProvider(p), p, nil
		},
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.Stats, providertest.Volumes, providertest.Isolation, providertest.Tokens,
			providertest.InitContainers, providertest.Sidecars, providertest.Restarts, providertest.Deadlines, providertest.SurvivesRestart,
		},
		Skip: map[string]string{
			"logs-content":  "Nomad does not record the times of lines",
			"logs-since":    "Nomad does not record the times of lines",
			"logs-previous": "Nomad keeps one log of all runs of a container",
		},
		Image:        testImage,
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-nomad",
	}.Run(t)
}
