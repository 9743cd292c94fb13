//go:build integration

package providertest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The mock keeps its pods in a journal, and runs no commands.
func TestMock(t *testing.T) {
	t.Parallel()
	journal, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = journal.Close() })
	providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := mock.New(mock.Config{NodeName: cfg.Node.Name, HostIP: cfg.HostIPs()[0]}, mock.WithJournal(journal))
			if err != nil {
				return nil, nil, err
			}
			p.ConfigureNode(context.Background(), cfg.Node)
			return p, p, nil
		},
		Capabilities: []providertest.Capability{
			providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward, providertest.Stats,
			providertest.Deadlines, providertest.EphemeralContainers, providertest.SurvivesRestart,
		},
		ControlPlane: filepath.Join(bin, "controlplane"),
		NodeName:     "providertest-mock",
	}.Run(t)
}
