package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // at http.DefaultServeMux
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/floor"
)

func newFloorCommand() *cobra.Command {
	var agent floor.Agent
	var kubeconfig, metrics string
	command := &cobra.Command{
		Use:   "floor",
		Short: "Do the least for the pods of nodes: one patch to say that each runs, one request to remove it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			if agent.Client, err = newClient(config, "floor"); err != nil {
				return err
			}
			group, ctx := errgroup.WithContext(cmd.Context())
			if metrics != "" {
				group.Go(func() error { return serveMetrics(ctx, metrics) })
			}
			group.Go(func() error { return agent.Run(ctx) })
			return group.Wait()
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	flags.StringVar(&agent.Node, "node", "floor", "name of the node, or the beginning of the names of several")
	flags.IntVar(&agent.Nodes, "nodes", 1, "number of nodes")
	flags.IntVar(&agent.Workers, "workers", 50, "requests at a time")
	flags.StringVar(&metrics, "metrics-addr", "", "address for metrics and profiles (default: not served)")
	return command
}

// serveMetrics serves until ctx ends.
func serveMetrics(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.Handle("/debug/pprof/", http.DefaultServeMux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
