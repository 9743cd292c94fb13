package main

import (
	goflag "flag"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// newRootCommand returns the command line. getenv returns environment variables.
func newRootCommand(getenv func(string) string) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "virtual-kubelet",
		Short: "Run a virtual node whose pods are run by a provider",
		Long: `Register a node with a Kubernetes cluster, and run the pods that are bound to it
by a provider (--provider). By default the cluster is that of kubectl, and the
certificate of the kubelet API is self-signed. With --nodes or --config one
process has many nodes.

Environment variables, besides those that flags name:
  VKUBELET_POD_IP        address of the node, at which the API server reaches this process
                         (default: --listen-address, or the address from which this
                         process reaches the API server)
  VKUBELET_POD_UID       UID of the pod that this process runs in; a restarted container
                         of that pod then has the node at once (default: none)
  VKUBELET_TAINT_KEY     key of the node's taint (default: virtual-kubelet.io/provider)
  VKUBELET_TAINT_VALUE   its value (default: the provider's name)
  VKUBELET_TAINT_EFFECT  its effect: NoSchedule, PreferNoSchedule or NoExecute
                         (default: NoSchedule)
  OTEL_*                 OpenTelemetry's, for traces, such as OTEL_SDK_DISABLED and
                         OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command or argument %q: see virtual-kubelet --help", args[0])
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.takeEnvironment(getenv)
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			return runNode(cmd.Context(), &o, cmd.ErrOrStderr())
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usagef("%w: see virtual-kubelet --help", err)
	})
	o.addFlags(command.Flags(), getenv)
	klogFlags := goflag.NewFlagSet("klog", goflag.ContinueOnError)
	klog.InitFlags(klogFlags)
	command.Flags().AddGoFlagSet(klogFlags)
	klogFlags.VisitAll(func(f *goflag.Flag) {
		command.Flags().Lookup(f.Name).Hidden = true // --log-level and --log-format are for users
	})
	command.AddCommand(newVersionCommand(), newProvidersCommand(), newConfigCommand(getenv), newConformanceCommand(getenv), newDoctorCommand(getenv), newInterlinkPluginCommand())
	return command
}
