package main

import (
	"errors"
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
certificate of the kubelet API is self-signed. With --nodes, or pools of nodes in the
file of --config, one process has many nodes. That file may have all that flags say,
too; flags and environment variables go before it.

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
			return runNode(cmd.Context(), &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usagef("%w: see virtual-kubelet --help", err)
	})
	o.addFlags(command.Flags(), getenv)
	klogFlags := goflag.NewFlagSet("klog", goflag.ContinueOnError)
	klog.InitFlags(klogFlags)
	for _, name := range []string{"v", "vmodule"} { // the others have no effect on where logs go
		command.Flags().AddGoFlag(klogFlags.Lookup(name))
		command.Flags().Lookup(name).Hidden = true // --log-level is for users
	}
	command.AddCommand(newVersionCommand(), newProvidersCommand(), newConfigCommand(getenv), newConformanceCommand(getenv), newDoctorCommand(getenv), newDeregisterCommand(getenv), newStatusCommand(), newInitCommand(), newInterlinkPluginCommand())
	for _, more := range commands {
		command.AddCommand(more())
	}
	refuseArguments(command)
	return command
}

// refuseArguments makes errors of arguments, of all commands, ones of the command line.
func refuseArguments(command *cobra.Command) {
	if check := command.Args; check != nil {
		command.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if _, ok := errors.AsType[usageError](err); err == nil || ok {
				return err
			}
			return usagef("%w: see %s --help", err, cmd.CommandPath())
		}
	}
	for _, sub := range command.Commands() {
		refuseArguments(sub)
	}
}
