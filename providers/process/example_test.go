package process_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// A node whose pods are processes of this machine.
func Example() {
	runtime.MaybeShim() // first of all: containers run under this same executable

	config, err := process.ParseConfig([]byte(`{"root": "/var/lib/edge-1", "runtime": {"sharedNetwork": true}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("edge-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := process.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: "edge-1", ClusterDomain: "cluster.local"}, config)
		if err != nil {
			return nil, nil, err
		}
		return nodeutil.AsProvider(p), p, nil
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
