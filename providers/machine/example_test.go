package machine_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

// A node whose pods each have a machine, which a command makes.
func Example() {
	config := machine.Config{
		Cluster: "home", StateDir: "/var/lib/virtual-kubelet/machines",
		Exec:      &machine.ExecConfig{Command: []string{"/usr/local/bin/machines"}},
		Bootstrap: machine.BootstrapConfig{URL: "https://10.0.0.5:10271"},
	}
	n, err := nodeutil.NewNode("machines-1", func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return machine.New(init, config, nil) // or a Driver of your own
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
