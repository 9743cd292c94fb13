package agent_test

import (
	"context"
	"fmt"
	"io"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// An agent whose pod only seems to run.
func Example() {
	bootstrap, err := agent.ParseBootstrap([]byte(`{"machine": "default-a-1"}`)) // the user data of the machine
	if err != nil {
		fmt.Println("it has to have all fields")
		return
	}
	key, err := agent.NewKey() // which is kept in the machine
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(agent.Run(context.Background(), agent.Options{
		Bootstrap: bootstrap, Key: key, Name: "mock",
		NewProvider: func(_ context.Context, init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			p, err := mock.New(mock.Config{NodeName: init.Node.Name})
			return p, p, p, err
		},
	}))
	// Output: it has to have all fields
}
