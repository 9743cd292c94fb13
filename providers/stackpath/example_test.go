package stackpath_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/stackpath"
)

// A node whose pods are workloads of StackPath.
func Example() {
	var config stackpath.Config
	if err := config.Merge(os.Getenv); err != nil { // SP_STACK_ID and so on
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("stackpath-dfw", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return stackpath.New(cfg, config)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
