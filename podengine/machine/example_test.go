package machine_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

// How a provider over a runtime of this machine is made, for nodeutil.NewNode.
func Example() {
	newProvider := func(containers internalapi.RuntimeService, images internalapi.ImageManagerService) nodeutil.NewProviderFunc {
		return func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			config := machine.Config{Root: "/var/lib/edge-1", KubeReserved: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi")}}
			if err := config.Validate(); err != nil {
				return nil, nil, err
			}
			config.Complete(cfg.Node.Name)
			engine, err := machine.NewEngine(context.Background(),
				machine.Node{ProviderConfig: cfg, Name: cfg.Node.Name, ClusterDomain: "cluster.local"},
				config, machine.ImageConfig{}, containers, images)
			if err != nil {
				return nil, nil, err
			}
			return nodeutil.AsProvider(engine), engine, nil
		}
	}
	_ = newProvider
}
