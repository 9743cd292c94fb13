package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// The agents that are always measured.
const (
	floorName = "floor"
	ourName   = "virtual-kubelet"
)

// remoteName is virtual-kubelet with a provider in another process.
const remoteName = "remote"

// self distinguishes the requests of this program from those of the agents.
const self = "bench"

// rig is where agents are measured: a control plane of their own. Its flags are
// those of all scenarios.
type rig struct {
	bin, out     string
	agentWorkers int
	extra        []string
	notes        []string

	client     kubernetes.Interface
	kubeconfig string
	clientCA   string // file with the authority of the clients of nodes
	audit      gauge.Audit
	dir        string
	progress   io.Writer
}

func (r *rig) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.bin, "bin", "bin", "directory with controlplane and virtual-kubelet")
	flags.StringVar(&r.out, "out", "", "directory for the table as Markdown, as a picture, and as JSON with all samples (default: none)")
	flags.IntVar(&r.agentWorkers, "agent-workers", 50, "workers of the floor and of virtual-kubelet")
	flags.StringArrayVar(&r.extra, "agent", nil, "a further agent, as NAME=COMMAND with NODE, NODES, KUBECONFIG and METRICS (an address to serve metrics on) where their values belong (may be repeated)")
	flags.StringArrayVar(&r.notes, "note", nil, "what else one has to know to compare the figures, such as a revision (may be repeated)")
}

// run has a scenario measure on a control plane of its own, and reports. The
// record of who asks what of the API server costs it time; without audit there
// is none.
func (r *rig) run(cmd *cobra.Command, name string, audit bool, scenario func(context.Context) (report.Result, error)) (err error) {
	r.progress = cmd.ErrOrStderr()
	if r.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer func() {
		if err == nil { // else the logs say why
			err = os.RemoveAll(r.dir)
		}
	}()
	r.step("%s: the control plane starts", name)
	stop, err := r.startControlPlane(cmd.Context(), audit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	load := loadAverage()
	result, err := scenario(cmd.Context())
	if err != nil {
		return fmt.Errorf("%w: the logs are in %s", err, r.dir)
	}
	if result.Conditions, err = r.conditions(result.Conditions, load); err != nil {
		return err
	}
	if r.out != "" {
		if err := result.Save(r.out, name); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	return result.Text(cmd.OutOrStdout())
}

func (r *rig) startControlPlane(ctx context.Context, audit bool) (stop func() error, err error) {
	options := controlplane.Options{Binary: filepath.Join(r.bin, "controlplane")}
	if audit {
		policy := filepath.Join(r.dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(gauge.AuditPolicy), 0o600); err != nil {
			return nil, err
		}
		r.audit = gauge.Audit{Path: filepath.Join(r.dir, "audit.log"), Ours: self}
		options.Args = map[string][]string{"kube-apiserver": {
			"--audit-policy-file=" + policy, "--audit-log-path=" + r.audit.Path, "--audit-log-maxsize=10000",
		}}
	}
	plane, err := controlplane.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	r.kubeconfig, r.clientCA = plane.Kubeconfig(), filepath.Join(plane.Dir(), "pki", "ca.crt")
	if r.client, err = newClient(plane.Config(), self); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return plane.Stop, nil
}

// agents are those of the command line, after those that are given.
func (r *rig) agents(given ...agent) ([]agent, error) {
	for _, text := range r.extra {
		a, err := parseAgent(text)
		if err != nil {
			return nil, fmt.Errorf("--agent: %w", err)
		}
		given = append(given, a)
	}
	return given, nil
}

// floor is the floor as an agent.
func (r *rig) floor() (agent, error) {
	program, err := os.Executable()
	return agent{name: floorName, command: []string{program, "floor", "--node", "NODE", "--nodes", "NODES", "--kubeconfig", "KUBECONFIG",
		"--metrics-addr", "METRICS", "--workers", fmt.Sprint(r.agentWorkers)}}, err
}

// ours is virtual-kubelet as an agent, with further flags.
func (r *rig) ours(flags ...string) agent { return r.with(ourName, "mock", flags...) }

// with is virtual-kubelet as an agent of a name, with a provider and further flags.
func (r *rig) with(name, provider string, flags ...string) agent {
	return agent{name: name, command: append([]string{filepath.Join(r.bin, "virtual-kubelet"), "--nodename", "NODE", "--kubeconfig", "KUBECONFIG",
		"--port", "0", "--metrics-addr", "METRICS", "--debug-http", "--disable-taint", "--provider", provider,
		"--pod-sync-workers", fmt.Sprint(r.agentWorkers)}, flags...)}
}

// configured is virtual-kubelet whose nodes of these names have a mock provider with this
// configuration.
func (r *rig) configured(config map[string]string, nodes ...string) (agent, error) {
	byNode := map[string]any{}
	for _, node := range nodes {
		byNode[node] = config
	}
	text, err := json.Marshal(byNode)
	if err != nil {
		return agent{}, err
	}
	return r.ours("--provider-config", r.providerFile()), os.WriteFile(r.providerFile(), text, 0o600)
}

func (r *rig) providerFile() string { return filepath.Join(r.dir, "provider.json") }

// served is virtual-kubelet whose mock provider, as configured, is a process of its own.
func (r *rig) served() (agent, error) {
	address := "unix://" + filepath.Join(r.dir, "provider.sock")
	path := filepath.Join(r.dir, "remote.json")
	a := r.with(remoteName, "remote", "--provider-config", path)
	a.provider = []string{filepath.Join(r.bin, "virtual-kubelet"), "serve-provider", "--provider", "mock", "--provider-config", r.providerFile(),
		"--nodename", "NODE", "--listen", address}
	return a, os.WriteFile(path, fmt.Appendf(nil, `{"address": %q}`, address), 0o600)
}

// step says what begins, since a run takes minutes to half an hour.
func (r *rig) step(format string, args ...any) {
	fmt.Fprintf(r.progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// newNamespace makes a namespace with what pods need.
func (r *rig) newNamespace(ctx context.Context, name string) error {
	_, err := r.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := r.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// end stops an agent and deletes its nodes.
func (r *rig) end(ctx context.Context, p *running) error {
	err := p.stop()
	for _, node := range p.nodes {
		err = errors.Join(err, r.client.CoreV1().Nodes().Delete(context.WithoutCancel(ctx), node, metav1.DeleteOptions{}))
	}
	return err
}

// sleep waits.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
