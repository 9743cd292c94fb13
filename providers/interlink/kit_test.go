//go:build integration

package interlink

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The plugin in memory runs no commands: only the checks without commands are run.
func TestInterLink(t *testing.T) {
	t.Parallel()
	transport := serve(t, &interlinktest.Server{OneObject: true}, &interlinktest.Plugin{World: grouptest.New(200 * time.Millisecond), Unknown: interlinktest.AsStateless})
	config := Config{InterlinkURL: "http://interlink:3000", PodIP: "192.0.2.9"}
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, n, err := newProvider(init, config, transport)
			return p, n, err
		},
		Capabilities: []providertest.Capability{providertest.Logs, providertest.Volumes, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-interlink",
	}.Run(t)
}
