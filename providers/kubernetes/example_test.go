package kubernetes_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

// A node whose pods run in another cluster.
func Example() {
	config, err := kubernetes.ParseConfig([]byte(`
apiVersion: kubernetes.virtual-kubelet.io/v1
kind: RemoteCluster
cluster: home
remote:
  server: https://remote.example.com:6443
  caFile: /etc/virtual-kubelet/remote-ca.crt
  tokenFile: /etc/virtual-kubelet/token
namespaces:
  mapping: prefix
  prefix: home-
  create: true
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("cluster-2", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := kubernetes.New(context.Background(), cfg, config)
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
