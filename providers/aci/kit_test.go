//go:build integration

package aci

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The fake runs no commands: only the checks without commands are run.
func TestACI(t *testing.T) {
	t.Parallel()
	server := acitest.New(grouptest.New(200 * time.Millisecond))
	config := testConfig()
	config.Pods = new(resource.MustParse("100"))
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := newProvider(init, config, connect(server))
			if err != nil {
				return nil, nil, err
			}
			return p, p, nil
		},
		Capabilities: []providertest.Capability{providertest.Logs, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-aci",
	}.Run(t)
}
