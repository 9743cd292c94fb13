package cri_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri"
)

// A node whose pods run in this machine's containerd.
func Example() {
	config, err := cri.ParseConfig([]byte(`{"endpoint": "unix:///run/containerd/containerd.sock"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("edge-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := cri.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: "edge-1", ClusterDomain: "cluster.local"}, config)
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
