// Command bench measures what an agent costs that runs the pods of nodes: beside
// the floor, which is the least that any agent can do, on the same control plane
// and in the same run, since figures of different machines and hours say little.
//
//	bench pods     # creates and deletes pods on a node
//	bench nodes    # registers nodes and lets them rest
//	bench restart  # kills the agent of a node with pods, and starts it again
//	bench kubelet  # runs containers with the real kubelet, and with provider cri
//	bench clusters # runs pods in another cluster, as Liqo does and as provider kubernetes
//	bench table    # makes the tables of an earlier run again
//	bench floor    # the floor alone, as an agent of nodes
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if newCommand().ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:          "bench",
		Short:        "Measure what the agent of a node costs, beside the least that it could",
		SilenceUsage: true,
	}
	command.AddCommand(newPodsCommand(), newNodesCommand(), newRestartCommand(), newKubeletCommand(), newClustersCommand(), newTableCommand(), newFloorCommand())
	return command
}

// newClient makes a client without a rate limit of its own. As the
// floor is to be small, this program does without the packages of nodes.
func newClient(config *rest.Config, userAgent string) (kubernetes.Interface, error) {
	config.QPS = -1
	config.UserAgent = userAgent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}
