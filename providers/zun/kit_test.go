//go:build integration

package zun

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/zuntest"
)

// The fake runs no commands: only the checks without commands are run.
func TestZun(t *testing.T) {
	t.Parallel()
	server := zuntest.New(grouptest.New(200 * time.Millisecond))
	server.Usage.Memory = 1 << 20
	transport := connect(t, server)
	config := testConfig()
	config.Pods = new(resource.MustParse("100"))
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := newProvider(init, config, transport)
			if err != nil {
				return nil, nil, err
			}
			return p, p, nil
		},
		Capabilities: []providertest.Capability{providertest.Logs, providertest.Stats, providertest.SurvivesRestart},
		Skip:         map[string]string{"metrics-resource": "Zun has no CPU time, so that kubectl top has none of its pods"},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-zun",
	}.Run(t)
}
