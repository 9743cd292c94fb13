package main

import (
	"encoding/json"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
)

func newVersionCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := buildinfo.Get()
			switch output {
			case "":
				revision := ""
				if info.Revision != "" {
					revision = " (" + info.Revision + ")"
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "virtual-kubelet %s%s, Kubernetes %s, %s\n", info.Version, revision, info.Kubernetes, info.Go)
				return err
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(info)
			}
			return usagef("--output is %q: use json, or leave it out", output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "output format: json (default: one line of text)")
	return command
}

// buildMetric is always 1: what this binary was built from is in its labels.
func buildMetric() prometheus.Collector {
	info := buildinfo.Get()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "vk_build_info",
		Help:        "What this binary was built from.",
		ConstLabels: prometheus.Labels{"version": info.Version, "revision": info.Revision, "kubernetes": info.Kubernetes, "go": info.Go},
	}, func() float64 { return 1 })
}
