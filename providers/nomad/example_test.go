package nomad_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad"
)

// A node whose pods are jobs of Nomad.
func Example() {
	config, err := nomad.ParseConfig([]byte("address: https://nomad.example:4646\ncaCert: /etc/nomad/ca.pem\n"))
	if err == nil {
		err = config.Merge(os.Getenv) // NOMAD_TOKEN
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("nomad-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return nomad.New(cfg, config)
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
