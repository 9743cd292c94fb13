package providertest_test

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// newProvider is what the program of the provider gives to nodeutil.NewNode.
func newProvider(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
	p, err := mock.New(mock.Config{NodeName: cfg.Node.Name})
	return p, p, err
}

// What a test in a provider's repository does, with controlplane on the PATH.
func Example() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		providertest.Run(t, newProvider, providertest.Logs, providertest.Exec)
	}
}

// With options: where the control plane is, what image the backend has, and what
// is left out, and why.
func ExampleSuite() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		providertest.Suite{
			NewProvider:  newProvider,
			Capabilities: []providertest.Capability{providertest.Commands, providertest.Logs, providertest.Exec},
			ControlPlane: "/path/to/controlplane",
			Image:        "registry.example.com/busybox",
			Skip:         map[string]string{"exec-terminal": "the backend has no terminals"},
		}.Run(t)
	}
}
