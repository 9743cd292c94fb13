package eci_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci"
)

// A node whose pods are container groups of Alibaba Cloud.
func Example() {
	config, err := eci.ParseConfig([]byte("clusterName: home\nregion: cn-hangzhou\nvSwitch: vsw-1\nsecureGroup: sg-1\n"))
	if err == nil {
		err = config.Merge(os.Getenv) // ECI_ACCESS_KEY and ECI_SECRET_KEY
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("eci-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := eci.New(cfg, config)
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
