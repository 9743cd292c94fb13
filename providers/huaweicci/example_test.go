package huaweicci_test

import (
	"context"
	"fmt"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/huaweicci"
)

// A node whose pods run in a namespace of Huawei Cloud CCI 2.0.
func Example() {
	config, err := huaweicci.ParseConfig([]byte(`
Project: shop
Region: cn-north-4
API: v2
Cluster: home
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	config.Merge(os.Getenv) // CCI_APP_KEY and CCI_APP_SECRET
	n, err := nodeutil.NewNode("cci", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := huaweicci.New(context.Background(), cfg, config)
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
