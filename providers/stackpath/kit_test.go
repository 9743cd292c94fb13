//go:build integration

package stackpath

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

func TestStackPath(t *testing.T) {
	t.Parallel()
	transport := connect(t, grouptest.New(200*time.Millisecond))
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			b, err := newBackend(testConfig(), transport)
			if err != nil {
				return nil, nil, err
			}
			options := b.options()
			options.CacheFor = time.Second
			return podgroup.New(init, b, options)
		},
		Capabilities: []providertest.Capability{providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-stackpath",
	}.Run(t)
}
