// Package doctor looks at a cluster and at nodes of this program in it, and reports what
// is wrong and how to fix it. It changes nothing: all that it creates in the cluster are
// reviews of who it is and what it may do, which the API server does not keep.
package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config is what there is to examine.
type Config struct {
	// Cluster is the API server, with the credentials of who runs the doctor. Required.
	Cluster *rest.Config
	// Source is where Cluster comes from, for messages.
	Source string
	// Configuration is what is wrong with the configuration, beside what is so wrong
	// that there is nothing to examine. Nil if nothing is.
	Configuration error
	// ServiceAccount is the account of the nodes' process, as NAMESPACE/NAME. Empty
	// means that of Cluster.
	ServiceAccount string
	// Grants are the manifests that give the process its rights.
	Grants []runtime.Object
	// GrantCommand prints the same; " --service-account NAMESPACE/NAME" is added to it.
	GrantCommand string
	// NodeGrants are the manifests that give a node with an identity of its own what it needs
	// beside the rights of nodes, and NodeCommand prints them.
	NodeGrants  []runtime.Object
	NodeCommand string
	// Kubernetes is the version of the Kubernetes libraries that the process is built
	// of, such as v1.36.3. Required.
	Kubernetes string
	// Nodes are the nodes to examine.
	Nodes []Node
	// ClientCAFile is the file with the CA of callers of the kubelet API. Empty means
	// that it is the cluster's.
	ClientCAFile string
	// NoLease means that the nodes have no leases.
	NoLease bool
	// Holder describes the process whose identity and group are in a node's lease, and
	// reports whether it keeps the process that is configured here from the node. Required.
	Holder func(identity, group string) (description string, rival bool)
	// Elections has the leases of --leader-elect or --shards; the zero value means that
	// there are none.
	Elections Elections
}

// Elections are the leases by which several processes agree on which of them acts.
type Elections struct {
	Namespace string
	Leader    string // name of the leader's lease; empty without --leader-elect
	Shards    int    // how many there are; zero without --shards
	Name      string // beginning of the names of the shards' leases
}

// Node is a node as it is configured.
type Node struct {
	Name     string
	Provider string // empty if it is not known
}

// Status is the outcome of a check.
type Status string

// The outcomes. A warning is something that a node works with.
const (
	OK         Status = "ok"
	Warning    Status = "warning"
	Failed     Status = "failed"
	NotChecked Status = "not checked"
)

// Finding is what a check has found.
type Finding struct {
	Status  Status `json:"status"`
	Message string `json:"message"`
	// Fix is what to do about it: a command, or a sentence with one.
	Fix string `json:"fix,omitempty"`
}

// Result is a check with what it has found.
type Result struct {
	Check string `json:"check"`
	Node  string `json:"node,omitempty"` // empty for a check of the cluster
	Finding
}

// check is something to look at.
type check struct {
	name string
	// needs are the checks without which this one could only repeat what they found.
	needs []string
	run   func(context.Context, *examination) Finding
}

// clusterChecks and nodeChecks are all checks, in the order in which they run.
var (
	clusterChecks = []check{
		{"configuration", nil, checkConfiguration},
		{"credentials", nil, checkCredentials},
		{"version", []string{"credentials"}, checkVersion},
		{"clock", []string{"credentials"}, checkClock},
		{"rights", []string{"configuration", "credentials"}, checkRights},
		{"client-ca", []string{"credentials"}, checkClientCA},
		{"metrics-server", []string{"credentials"}, checkMetricsServer},
		{"election", []string{"credentials", "clock"}, checkElection},
	}
	nodeChecks = []check{
		{"node", []string{"credentials"}, checkNode},
		{"lease", []string{"node", "clock"}, checkLease},
		{"holder", []string{"lease"}, checkHolder},
		{"ready", []string{"lease"}, checkReady},
		{"certificate-request", []string{"node"}, checkCertificateRequest},
		{"certificate", []string{"lease", "certificate-request"}, checkCertificate},
		{"address", []string{"lease", "certificate-request"}, checkAddress},
		{"pods", []string{"node"}, checkPods},
		{"limits", []string{"node"}, checkLimits},
	}
)

// checkTimeout bounds each check. The API server needs half a minute to find out that a
// node does not answer.
const checkTimeout = 45 * time.Second

// maxNodes is how many nodes are examined at the same time.
const maxNodes = 8

// examination is what the checks of one run share.
type examination struct {
	Config
	client kubernetes.Interface

	user authenticationv1.UserInfo // set by checkCredentials
	skew time.Duration             // of the API server's clock from ours; set by checkClock

	node      Node         // which nodeChecks are about
	object    *corev1.Node // set by checkNode
	presented *presented   // set by present
}

// Run runs all checks, those of a few nodes at the same time. The error is one of the
// configuration, or that of a ctx that has ended: then what was found says nothing.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	client, err := kubernetes.NewForConfig(cfg.Cluster)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", cfg.Cluster.Host, err)
	}
	e := &examination{Config: cfg, client: client}
	checks := clusterChecks
	if cfg.Elections == (Elections{}) {
		checks = slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return c.name == "election" })
	}
	results, causes := e.run(ctx, checks, nil)
	ofNodes := make([][]Result, len(cfg.Nodes))
	var examining errgroup.Group
	examining.SetLimit(maxNodes)
	for i, n := range cfg.Nodes {
		examining.Go(func() error {
			of := *e
			of.node = n
			ofNodes[i], _ = of.run(ctx, nodeChecks, causes)
			return nil
		})
	}
	_ = examining.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("stopped before all was examined: %w", context.Cause(ctx))
	}
	return append(results, slices.Concat(ofNodes...)...), nil
}

// server is the address of the API server, without a password.
func (e *examination) server() string {
	address, err := url.Parse(e.Cluster.Host)
	if err != nil || address.Host == "" {
		return e.Cluster.Host
	}
	return address.Redacted()
}

// run runs checks. The causes are the names of the checks that failed, by the name of
// each check that failed or was not run for it.
func (e *examination) run(ctx context.Context, checks []check, before map[string]string) (results []Result, causes map[string]string) {
	if causes = maps.Clone(before); causes == nil {
		causes = map[string]string{}
	}
	for _, c := range checks {
		finding := e.runOne(ctx, c, causes)
		finding.Message, finding.Fix = Plain(finding.Message), Plain(finding.Fix)
		results = append(results, Result{Check: c.name, Node: e.node.Name, Finding: finding})
		if finding.Status == Failed {
			causes[c.name] = c.name
		}
	}
	return results, causes
}

func (e *examination) runOne(ctx context.Context, c check, causes map[string]string) Finding {
	for _, need := range c.needs {
		if cause, bad := causes[need]; bad {
			causes[c.name] = cause
			return notChecked("%s failed", cause)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.run(ctx, e)
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Message: fmt.Sprintf(format, args...)}
}

func notChecked(format string, args ...any) Finding {
	return Finding{Status: NotChecked, Message: fmt.Sprintf(format, args...)}
}

func warning(fix, format string, args ...any) Finding {
	return Finding{Status: Warning, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func failed(fix, format string, args ...any) Finding {
	return Finding{Status: Failed, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// unread is the finding of a check that could not read an object. That who runs the
// doctor may not read it is no fault of the node.
func (e *examination) unread(object string, err error) Finding {
	if apierrors.IsForbidden(err) {
		return notChecked("%s may not read %s: run this with an administrator's --kubeconfig, and --service-account for the rights of the node's account", e.user.Username, object)
	}
	return failed("", "cannot read %s: %v", object, err)
}
