//go:build integration

package fargate

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The fake runs no containers, and commands of kubectl exec on this machine.
func TestFargate(t *testing.T) {
	t.Parallel()
	server := ecstest.New(grouptest.New(200 * time.Millisecond))
	config := testConfig()
	config.Pods = new(resource.MustParse("100"))
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := newProvider(init, connect(t, server, config))
			if err != nil {
				return nil, nil, err
			}
			return p, p, nil
		},
		Capabilities: []providertest.Capability{providertest.Logs, providertest.Exec, providertest.SurvivesRestart},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-fargate",
	}.Run(t)
}
