package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/deregister"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/doctor"
)

const deregisterHelp = `Remove from the cluster what the nodes of this configuration have left there: their
Nodes, leases and certificate signing requests and, with --leader-elect or --shards, the
leases of these. Stop virtual-kubelet first, and delete the pods before that. Give the
flags with which it ran, and an administrator's --kubeconfig.

Without --yes it prints what it would remove, and removes nothing. It also removes nothing
while a process may act for a node, which its lease shows, or while pods are bound to one,
unless --force is given. A Node that no virtual kubelet made is left alone in any case, and so
is one of another provider, if --provider is given.

Exit status:
  0  all was removed, or there was nothing
  1  something was not removed, or --yes is missing
  2  the command line is wrong`

// deregisterOptions are the values of the flags beside those of virtual-kubelet itself.
type deregisterOptions struct {
	*options
	account    string
	yes, force bool
}

func newDeregisterCommand(getenv func(string) string) *cobra.Command {
	o := deregisterOptions{options: &options{}}
	command := &cobra.Command{
		Use:   "deregister",
		Short: "Remove what nodes have left in the cluster",
		Long:  deregisterHelp,
	}
	o.addTo(command, getenv, func() error { return cmp.Or(checkAccount(o.account), o.completeAll()) }, o.run)
	command.Flags().StringVar(&o.account, "service-account", "", "namespace and name of the nodes' service account, whose certificate signing requests are removed, too")
	command.Flags().BoolVar(&o.yes, "yes", false, "remove what is printed otherwise")
	command.Flags().BoolVar(&o.force, "force", false, "remove also what a process may use still, and Nodes with pods, whose workloads go on in the provider")
	return command
}

// run finds out what there is, and removes it.
func (o *deregisterOptions) run(ctx context.Context, stdout io.Writer) error {
	config, err := o.config(ctx)
	if err != nil {
		return err
	}
	plan, err := deregister.Find(ctx, config)
	if err != nil {
		return err
	}
	for _, note := range plan.Notes {
		fmt.Fprintln(stdout, "note:", note)
	}
	for _, danger := range plan.Dangers {
		fmt.Fprintln(stdout, "warning:", danger)
	}
	if !o.yes || len(plan.Dangers) > 0 && !o.force {
		for _, object := range plan.Objects {
			fmt.Fprintln(stdout, "would remove", object)
		}
	}
	switch {
	case len(plan.Objects) == 0:
		return nil
	case len(plan.Dangers) > 0 && !o.force:
		return fmt.Errorf("%w: heed the warnings, or give --force", deregister.ErrRefused)
	case !o.yes:
		return fmt.Errorf("%w: give --yes", deregister.ErrRefused)
	}
	if err := plan.Remove(ctx, config, func(object deregister.Object) { fmt.Fprintln(stdout, "removed", object) }); err != nil {
		return err
	}
	if command := o.rightsLeft(); command != "" {
		fmt.Fprintf(stdout, "its rights are left, which others may have, too: %s\n", command)
	}
	return nil
}

// rightsLeft returns the command that removes the rights of the account, and not the account,
// as which other programs may run; or those of a node with an identity of its own. It is empty for an account that
// is not named, since the default one may be of other nodes.
func (o *deregisterOptions) rightsLeft() string {
	rbac := o.rbac(o.account)
	rbac.nodeIdentity = o.bootstrap != "" && o.account == ""
	if o.account == "" && !rbac.nodeIdentity || rbac.complete() != nil { // the last: they are by other flags than these
		return ""
	}
	command := rbac.command()
	if !rbac.nodeIdentity {
		command += " --service-account " + doctor.Word(o.account) + " --roles-only"
	}
	return command + " | kubectl delete --ignore-not-found -f -"
}

// config is what the flags name.
func (o *deregisterOptions) config(ctx context.Context) (deregister.Config, error) {
	nodes, wrong, err := o.configuredNodes()
	if err != nil {
		return deregister.Config{}, err
	}
	if wrong != nil && o.poolsFile != "" {
		return deregister.Config{}, usageError{wrong} // some nodes are not known
	}
	cluster, _, err := o.credentials()
	if err != nil {
		return deregister.Config{}, err
	}
	cluster.UserAgent = "virtual-kubelet-deregister/" + o.nodeName
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return deregister.Config{}, fmt.Errorf("cannot make a client for the cluster: %w", err)
	}
	asking, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	skew, err := doctor.ClockSkew(asking, cluster)
	if err != nil {
		return deregister.Config{}, fmt.Errorf("the API server does not say what time it is, by which leases are compared: %w", err)
	}
	return deregister.Config{Client: client, Skew: skew, Nodes: nodes, ServiceAccount: o.account, Elections: o.elections(), Force: o.force}, nil
}
