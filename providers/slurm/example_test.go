package slurm_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm"
)

// A node whose pods are jobs of a Slurm cluster that is reached by ssh.
func Example() {
	config, err := slurm.ParseConfig([]byte("cluster: home\nssh: {host: login.example.com}\nroot: /shared/pods\nruntime: apptainer\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := nodeutil.NewNode("slurm-1", func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return slurm.New(init, config)
	}, nodeutil.WithKubeletAPI())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
