package aci_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci"
)

// A node whose pods are container groups of Azure.
func Example() {
	config, err := aci.ParseConfig([]byte("subscriptionID: 00000000-1111-2222-3333-444444444444\nresourceGroup: aci\nregion: westeurope\nclusterName: home\n"))
	if err == nil {
		err = config.Merge(os.Getenv) // AZURE_* and ACI_*
	}
	if err == nil {
		err = config.ReadCredentials(os.ReadFile) // such as azure.json
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("aci-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := aci.New(cfg, config)
		if err != nil {
			return nil, nil, err
		}
		return p, p, nil
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
