//go:build integration

package slurm

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// On a real Slurm, with processes of the machine.
func TestKit(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return New(init, c.config(RuntimeNone))
		},
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.Volumes, providertest.Tokens, providertest.InitContainers,
			providertest.Sidecars, providertest.Restarts, providertest.Deadlines, providertest.Stats, providertest.SurvivesRestart,
		},
		Skip:         map[string]string{"volume-nested": "without a container nothing can be mounted in a volume"},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-slurm",
		Timeout:      5 * time.Minute, // a busy machine is no failure
	}.Run(t)
}
