package interlink_test

import (
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink"
)

// A node whose pods an interLink API server has run. nodeutil.NewNode calls the function.
func Example() {
	config, err := interlink.ParseConfig([]byte(`
InterlinkURL: https://interlink.example.org
InterlinkPort: 443
VKTokenFile: /var/run/secrets/interlink/token
Resources:
  CPU: 64
  Memory: 256Gi
  Accelerators:
  - {ResourceType: nvidia.com/gpu, Model: a100, Available: 8}
`))
	if err != nil {
		panic(err)
	}
	newProvider := func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return interlink.New(init, config)
	}

	init := grouptest.NewCluster("uid").Config() // stands for what NewNode gives
	if _, _, err := newProvider(init); err != nil {
		panic(err)
	}
	fmt.Println(init.Node.Spec.ProviderID, init.Node.Spec.Taints[0].ToString())
	gpus := init.Node.Status.Capacity["nvidia.com/gpu"]
	fmt.Println(gpus.String(), init.Node.Labels["nvidia-gpu-type"])
	// Output:
	// external:///vk virtual-node.interlink/no-schedule=true:NoSchedule
	// 8 a100
}
