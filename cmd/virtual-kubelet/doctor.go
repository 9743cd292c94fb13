package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/doctor"
	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

const doctorHelp = `Look at the cluster and at the nodes of this configuration in it, and print what is
wrong and how to fix it. Give the flags and environment variables with which
virtual-kubelet runs; those that matter are --kubeconfig, --nodename (or --nodes,
--config), --provider and --provider-config, and none is required.

It changes nothing. All it creates are reviews of who it is and what it may do, which
the API server does not keep. It is of most use twice: with the credentials of the
node, and, since these may not read all that there is to see, with an administrator's
and --service-account, which the rights are then checked of.

Exit status:
  0  nothing failed; there may be warnings
  1  a check failed, or there is no cluster
  2  the command line is wrong`

// doctorOptions are the values of the flags beside those of virtual-kubelet itself.
type doctorOptions struct {
	*options
	account string
	output  string
}

func newDoctorCommand(getenv func(string) string) *cobra.Command {
	o := doctorOptions{options: &options{}}
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong with a node",
		Long:  doctorHelp,
	}
	o.addTo(command, getenv, o.complete, o.run)
	command.Flags().StringVar(&o.account, "service-account", "", "namespace and name of the nodes' service account, to check its rights by impersonation (default: the account of the kubeconfig)")
	command.Flags().StringVarP(&o.output, "output", "o", "text", "output format: text or json")
	return command
}

// addTo gives a command the flags of virtual-kubelet itself, and has it run what is made of
// them.
func (o *options) addTo(command *cobra.Command, getenv func(string) string, complete func() error, run func(context.Context, io.Writer) error) {
	command.Args = cobra.NoArgs
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		o.takeEnvironment(getenv)
		if err := complete(); err != nil {
			return usageError{err}
		}
		return run(cmd.Context(), cmd.OutOrStdout())
	}
	o.addFlags(command.Flags(), getenv)
}

// checkAccount refuses what is no service account; empty is none.
func checkAccount(account string) error {
	if account == "" {
		return nil
	}
	_, _, err := splitAccount(account)
	return err
}

// complete checks the values, and fills in defaults.
func (o *doctorOptions) complete() error {
	if err := oneOf("--output", o.output, "text", "json"); err != nil {
		return err
	}
	if err := checkAccount(o.account); err != nil {
		return err
	}
	return o.completeAll()
}

// run runs the checks, and writes what they find.
func (o *doctorOptions) run(ctx context.Context, stdout io.Writer) error {
	config, err := o.examined()
	if err != nil {
		return err
	}
	results, err := doctor.Run(ctx, config)
	if err != nil {
		return err
	}
	write := doctor.WriteText
	if o.output == "json" {
		write = doctor.WriteJSON
	}
	if err := write(stdout, results); err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	names := doctor.FailedChecks(results)
	switch more := len(names) - maxFailed; {
	case len(names) == 0:
		return nil
	case more > 0:
		return fmt.Errorf("failed checks: %s and %d more", strings.Join(names[:maxFailed], ", "), more)
	default:
		return fmt.Errorf("failed checks: %s", strings.Join(names, ", "))
	}
}

// maxFailed is how many of the checks that failed are named at the end.
const maxFailed = 10

// examined is what the flags name.
func (o *doctorOptions) examined() (doctor.Config, error) {
	nodes, wrong, err := o.configuredNodes()
	if err != nil {
		return doctor.Config{}, err
	}
	rbac := o.rbac(o.account)
	if err := rbac.complete(); err != nil && wrong == nil {
		return doctor.Config{}, usageError{err}
	}
	ofNode, nodeGrants := o.rbac(""), []runtime.Object(nil)
	ofNode.nodeIdentity = true
	if ofNode.complete() == nil {
		nodeGrants = ofNode.objects()
	}
	cluster, source, err := o.credentials()
	if err != nil {
		return doctor.Config{}, err
	}
	cluster.UserAgent = "virtual-kubelet-doctor/" + o.nodeName
	return doctor.Config{
		Cluster:        cluster,
		Source:         source,
		Configuration:  wrong,
		ServiceAccount: o.account,
		Grants:         rbac.objects(),
		GrantCommand:   rbac.command(),
		NodeGrants:     nodeGrants,
		NodeCommand:    ofNode.command(),
		Kubernetes:     buildinfo.Get().Kubernetes,
		Nodes:          nodes,
		ClientCAFile:   o.clientCAFile,
		NoLease:        !o.enableNodeLease,
		Holder:         o.describeHolder,
		Elections:      o.elections(),
	}, nil
}

// elections returns the leases of --leader-elect or --shards.
func (o *options) elections() doctor.Elections {
	switch {
	case o.leaderElect:
		return doctor.Elections{Namespace: o.electNamespace, Leader: leaderLease(o.nodeName)}
	case o.shards > 0:
		return doctor.Elections{Namespace: o.electNamespace, Name: o.nodeName, Shards: o.shards}
	}
	return doctor.Elections{}
}

// rbac returns the options of print-rbac for the nodes.
func (o *options) rbac(account string) *rbacOptions {
	rbac := &rbacOptions{
		nodeName:       o.nodeName,
		namespace:      o.namespace,
		provider:       o.provider,
		poolsFile:      o.poolsFile,
		account:        cmp.Or(account, defaultAccount),
		leaderElect:    o.leaderElect,
		shards:         o.shards > 0,
		electNamespace: o.electNamespace,
		serving:        o.serving,
	}
	if o.nodes > 0 {
		rbac.nodeName = ""
	}
	return rbac
}

// configuredNodes returns the nodes, and what is wrong with the provider's configuration
// or with some of the pools.
func (o *options) configuredNodes() (nodes []doctor.Node, wrong, err error) {
	wanted, err := o.numberedNodes()
	if err != nil {
		return nil, nil, err
	}
	if o.poolsFile != "" {
		if wanted, wrong = newPoolFile(o).Load(); wanted == nil {
			return nil, nil, usageError{wrong}
		}
		wrong = config.Join(o.atLines(wrong)...)
	} else if wrong, err = o.checkProvider(); err != nil {
		return nil, nil, err
	} else {
		wrong = o.atProviderConfig(wrong)
	}
	if o.nodes == 0 && o.poolsFile == "" {
		return []doctor.Node{{Name: o.nodeName, Provider: o.provider}}, wrong, nil
	}
	for _, n := range wanted.Nodes {
		nodes = append(nodes, doctor.Node{Name: n.Name, Provider: n.Provider})
	}
	return nodes, wrong, nil
}

// checkProvider returns what is wrong with the provider's configuration.
func (o *options) checkProvider() (wrong, err error) {
	entry, known := providers[o.provider]
	if !known {
		return nil, nil
	}
	content, err := o.configOfProvider()
	if err != nil {
		return nil, err
	}
	if err := entry.check(content); err != nil {
		return fmt.Errorf("--provider-config: %w", err), nil
	}
	return nil, nil
}

// credentials returns the API server and the credentials for it. A node's own
// certificate is used if there is one, and not requested.
func (o *options) credentials() (config *rest.Config, source string, err error) {
	if o.bootstrap == "" {
		return kubeConfig(o)
	}
	if config, source, err := kubeConfig(o); o.kubeconfig != "" && err == nil && hasCredentials(config) {
		return config, source, nil
	}
	bootstrap := *o
	bootstrap.kubeconfig = o.bootstrap
	config, _, err = kubeConfig(&bootstrap)
	if err != nil {
		return nil, "", err
	}
	certificate := filepath.Join(o.certDir, clientCertificate)
	if _, err := os.Stat(certificate); err != nil {
		return nil, "", fmt.Errorf("node %s has no client certificate yet: %w (start virtual-kubelet, and approve its request if the cluster does not: kubectl get csr)", o.nodeName, err)
	}
	config = rest.AnonymousClientConfig(config)
	config.CertFile, config.KeyFile = certificate, certificate
	return limit(config, o), "the certificate " + certificate, nil
}

// clientCertificate is the file in --cert-dir that has a node's own certificate.
const clientCertificate = "kubelet-client-current.pem"

// describeHolder describes the process that has a node's lease, by its identity. It is a
// rival if this runs in another pod, and the two are not of one group, such as those that
// elect a leader.
func (o *doctorOptions) describeHolder(identity, group string) (description string, rival bool) {
	id, ok := parseProcessID(identity)
	if !ok {
		return identity, false
	}
	description = "process " + id.pid + " of " + id.host
	if id.pod != "" {
		description += " (pod UID " + id.pod + ")"
	}
	return description, o.podUID != "" && id.pod != o.podUID && (group == "" || group != o.identity.Group)
}
