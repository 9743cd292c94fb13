package remote_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

// A node whose pods another process runs. nodeutil.NewNode calls the function.
func Example() {
	config, err := remote.ParseConfig([]byte("address: unix:///run/provider/provider.sock"))
	if err != nil {
		panic(err)
	}
	newProvider := func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return remote.New(context.Background(), init, config)
	}
	_ = newProvider
	fmt.Println(config.Address, config.StartTimeout.Duration)
	// Output: unix:///run/provider/provider.sock 1m0s
}
