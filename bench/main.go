// Command bench measures what an agent costs that runs the pods of nodes: beside
// the floor, which is the least that any agent can do, on the same control plane
// and in the same run, since figures of different machines and hours say little.
//
//	bench pods    # floor and virtual-kubelet in turns, as a table with ratios
//	bench floor   # the floor alone, as a node's agent
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/floor"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := &cobra.Command{
		Use:          "bench",
		Short:        "Measure what the agent of a node costs, beside the least that it could",
		SilenceUsage: true,
	}
	command.AddCommand(newPodsCommand(), newFloorCommand())
	if command.ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

func newFloorCommand() *cobra.Command {
	var agent floor.Agent
	var kubeconfig string
	command := &cobra.Command{
		Use:   "floor",
		Short: "Do the least for the pods of a node: one patch to say that each runs, one request to remove it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			if agent.Client, err = newClient(config); err != nil {
				return err
			}
			return agent.Run(cmd.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	flags.StringVar(&agent.Node, "node", "floor", "name of the node")
	flags.IntVar(&agent.Workers, "workers", 50, "requests at a time")
	return command
}

// newClient makes a client without a rate limit of its own.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config.QPS = -1
	client, err := kubernetes.NewForConfig(nodeutil.Protobuf(config))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}
