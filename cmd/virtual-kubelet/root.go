package main

import (
	goflag "flag"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// newRootCommand makes the command line. getenv is where environment variables
// come from.
func newRootCommand(getenv func(string) string) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "virtual-kubelet",
		Short: "Run a virtual Kubernetes node whose pods a provider runs",
		Long: `Registers a node with the Kubernetes cluster, and runs the pods that are bound
to it with a provider, which --provider names. It takes the cluster that kubectl
takes, and a self-signed certificate, unless flags say otherwise. With --nodes or
--config it is many nodes in one process.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command or argument %q: see virtual-kubelet --help", args[0])
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	command.AddCommand(newVersionCommand(), newProvidersCommand(), newConfigCommand(getenv), newConformanceCommand(getenv))
	return command
}
