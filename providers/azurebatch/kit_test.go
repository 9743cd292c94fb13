//go:build integration

package azurebatch

import (
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch/batchtest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The fake runs no commands: only the checks without commands are run.
func TestAzureBatch(t *testing.T) {
	t.Parallel()
	fake := batchtest.New(grouptest.New(200 * time.Millisecond))
	fake.Properties = map[string]any{"taskSlotsPerNode": 64}
	transport := connect(t, fake)
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := newProvider(init, testConfig(), transport)
			if err != nil {
				return nil, nil, err
			}
			return p, p, nil
		},
		Capabilities:  []providertest.Capability{providertest.Logs, providertest.SurvivesRestart},
		RestartPolicy: corev1.RestartPolicyNever,
		ControlPlane:  filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:      "providertest-azurebatch",
	}.Run(t)
}
