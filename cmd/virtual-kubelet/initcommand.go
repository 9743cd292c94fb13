package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/scaffold"
	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
)

const initHelp = `Write the repository of a new provider: a Go module with what a provider has to have, for
pods in memory, its program, configuration, tests, the conformance kit, Dockerfile, manifests,
values of the chart and a workflow for CI. It builds and passes its tests as it is; what is
marked TODO is for calls of your backend.

What it is built on (docs/choose.md):
  pod        the six methods of a provider, for a backend that takes pods in a way of its own
  podengine  package podengine, for a backend that runs single containers
  podgroup   package podgroup, for a service that runs a pod as one unit of its own
  remote     the six methods, in a process that serves a virtual kubelet by gRPC

Exit status:
  0  it was written
  1  it could not be
  2  the command line is wrong`

// kindRights are what providers of a kind need beside the rights of every node.
var kindRights = map[string]providerEntry{
	"podengine": {rights: []rbacv1.PolicyRule{tokenRule}}, // for volumes, as of remote
	"podgroup":  {readsClusterUID: true},
	"remote":    {rights: []rbacv1.PolicyRule{tokenRule}, readsClusterUID: true}, // as of provider remote
}

func newInitCommand() *cobra.Command {
	var o scaffold.Options
	var dir string
	command := &cobra.Command{
		Use:   "init NAME",
		Short: "Write the repository of a new provider",
		Long:  initHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d arguments, want the name of the provider", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			o.Module = cmp.Or(o.Module, "example.org/"+o.Name)
			dir = cmp.Or(dir, o.Name)
			o.Version = buildinfo.Get().Version
			if o.Replace != "" {
				o.Version = "v0.0.0"
				absolute, err := filepath.Abs(o.Replace)
				if err != nil {
					return err
				}
				o.Replace = absolute
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			rights := rbacOptions{nodeName: o.Name, electNamespace: "kube-system", account: "kube-system/" + o.Name, needs: kindRights[o.Kind]}
			if err := rights.complete(); err != nil {
				return usageError{err}
			}
			var err error
			if o.RBAC, err = toYAML(rights.objects()); err != nil {
				return err
			}
			files, err := scaffold.Write(dir, o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Wrote in %s:\n  %s\nNext:\n  cd %s && go mod tidy && go test ./...\n", dir, strings.Join(files, "\n  "), dir)
			return err
		},
	}
	command.Flags().StringVar(&o.Kind, "kind", "pod", "what the provider is built on: "+strings.Join(scaffold.Kinds(), ", "))
	command.Flags().StringVar(&o.Module, "module", "", "path of the Go module (default: example.org/NAME)")
	command.Flags().StringVar(&dir, "directory", "", "directory to write, which must be empty if it exists (default: NAME)")
	command.Flags().StringVar(&o.Replace, "replace", "", "clone of Virtual Kubelet that the module uses in place of a release (default: none)")
	return command
}
