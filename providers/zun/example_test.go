package zun_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun"
)

// A node whose pods are capsules of OpenStack Zun.
func Example() {
	config, err := zun.ParseConfig([]byte("cloud: lab\nclusterName: home\n"))
	if err == nil {
		err = config.Merge(os.Getenv) // OS_*
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("zun-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := zun.New(cfg, config)
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
