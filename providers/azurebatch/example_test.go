package azurebatch_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch"
)

// A node whose pods are tasks of Azure Batch.
func Example() {
	config, err := azurebatch.ParseConfig([]byte("accountName: account\naccountLocation: westeurope\npoolID: pool\n"))
	if err == nil {
		err = config.Merge(os.Getenv) // AZURE_*
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("batch-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := azurebatch.New(cfg, config)
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
