package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// podsBench creates and deletes pods on one node, once for each agent and round.
type podsBench struct {
	bin, out     string
	pods         int
	workers      int
	rate         float64
	rounds       int
	agentWorkers int
	shape        string
	extra        []string
	settle       time.Duration
	profiles     string

	client     kubernetes.Interface
	kubeconfig string
	dir        string
	progress   io.Writer
}

// shapes are the kinds of pods.
var shapes = map[string]func(*corev1.Pod){
	"plain": nil,
	"rich":  rich,
}

// rich gives a pod three containers, each with twenty references and a probe.
func rich(pod *corev1.Pod) {
	first := pod.Spec.Containers[0]
	pod.Spec.Containers = nil
	for i := range 3 {
		c := *first.DeepCopy()
		c.Name = fmt.Sprintf("c%d", i)
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		for v := range 20 {
			env := corev1.EnvVar{Name: fmt.Sprintf("VAR_%d", v)}
			switch v % 4 {
			case 0:
				env.Value = "$(VAR_1)-$(VAR_2)"
			case 1:
				env.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
			case 2:
				env.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Key: "key"}}
			case 3:
				env.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}
			}
			c.Env = append(c.Env, env)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
}

// configMap is what rich pods refer to.
const configMap = "bench"

func newPodsCommand() *cobra.Command {
	b := &podsBench{}
	command := &cobra.Command{
		Use:   "pods",
		Short: "Create and delete pods on one node, with the floor and with virtual-kubelet in turns",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.progress = cmd.ErrOrStderr()
			return b.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&b.bin, "bin", "bin", "folder with controlplane and virtual-kubelet")
	flags.StringVar(&b.out, "out", "", "folder for the table as Markdown and as a picture (default: none)")
	flags.IntVar(&b.pods, "pods", 1000, "number of pods")
	flags.IntVar(&b.workers, "workers", 20, "requests of the load at a time")
	flags.Float64Var(&b.rate, "rate", 0, "most requests of the load a second, 0 for no limit")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each agent is measured; the table has the medians")
	flags.IntVar(&b.agentWorkers, "agent-workers", 50, "workers of the floor and of virtual-kubelet")
	flags.StringVar(&b.shape, "shape", "plain", "kind of the pods: plain, or rich (three containers with probes and 20 variables each)")
	flags.DurationVar(&b.settle, "settle", 5*time.Second, "how long pods run before their memory is read and they are deleted")
	flags.StringVar(&b.profiles, "profiles", "", "folder for profiles of virtual-kubelet in its first round, which make that round slower (default: none)")
	flags.StringArrayVar(&b.extra, "agent", nil, "a further agent, as NAME=COMMAND with NODE and KUBECONFIG where their values belong (may be repeated)")
	return command
}

// run measures all agents in turns and writes the table.
func (b *podsBench) run(ctx context.Context, stdout io.Writer) (err error) {
	if _, ok := shapes[b.shape]; !ok {
		return fmt.Errorf("--shape: there is no kind of pods %q", b.shape)
	}
	if b.pods < 1 || b.workers < 1 || b.rounds < 1 {
		return errors.New("--pods, --workers and --rounds must be 1 at least")
	}
	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer func() {
		if err == nil { // else the logs say why
			err = os.RemoveAll(b.dir)
		}
	}()
	agents, err := b.agents()
	if err != nil {
		return err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Binary: filepath.Join(b.bin, "controlplane")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	b.kubeconfig = plane.Kubeconfig()
	if b.client, err = newClient(plane.Config()); err != nil {
		return err
	}
	samples := map[string][]sample{}
	for round := range b.rounds {
		for _, a := range agents {
			s, err := b.measure(ctx, a, round)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w: its log is in %s", a.name, round+1, err, b.dir)
			}
			samples[a.name] = append(samples[a.name], s)
			fmt.Fprintf(b.progress, "round %d of %d, %s: %s\n", round+1, b.rounds, a.name, s)
		}
		slices.Reverse(agents) // who comes first has the smaller etcd
	}
	return b.report(stdout, samples)
}

// agents are the floor, virtual-kubelet, and those of the command line.
func (b *podsBench) agents() ([]agent, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	agents := []agent{
		{floorName, []string{self, "floor", "--node", "NODE", "--kubeconfig", "KUBECONFIG", "--workers", fmt.Sprint(b.agentWorkers)}},
		{ourName, []string{filepath.Join(b.bin, "virtual-kubelet"), "--nodename", "NODE", "--kubeconfig", "KUBECONFIG",
			"--port", "0", "--disable-taint", "--provider", "mock", "--pod-sync-workers", fmt.Sprint(b.agentWorkers)}},
	}
	if b.profiles != "" {
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return nil, err
		}
		agents[1].command = append(agents[1].command, "--debug-http")
	}
	for _, text := range b.extra {
		a, err := parseAgent(text)
		if err != nil {
			return nil, fmt.Errorf("--agent: %w", err)
		}
		agents = append(agents, a)
	}
	return agents, nil
}

// measure runs the pods once with one agent, on a node and in a namespace of
// their own.
func (b *podsBench) measure(ctx context.Context, a agent, round int) (s sample, err error) {
	id := fmt.Sprintf("bench-%s-%d", strings.ToLower(a.name), round)
	if err := b.newNamespace(ctx, id); err != nil {
		return s, err
	}
	r, err := a.start(ctx, b.client, id, b.kubeconfig, filepath.Join(b.dir, id+".log"))
	if err != nil {
		return s, err
	}
	defer func() {
		err = errors.Join(err, r.stop(), b.client.CoreV1().Nodes().Delete(context.WithoutCancel(ctx), id, metav1.DeleteOptions{}))
	}()
	l := &load.Load{
		Client: b.client, Namespace: id, Nodes: []string{id}, Pods: b.pods, Workers: b.workers, Rate: b.rate,
		Shape: shapes[b.shape], Timeout: 10 * time.Minute,
	}
	before, err := gauge.ReadRequests(ctx, b.client)
	if err != nil {
		return s, err
	}
	profiled := b.profiles != "" && a.name == ourName && round == 0
	if profiled {
		stop := b.profile(ctx, id)
		defer func() { err = errors.Join(err, stop()) }()
	}
	pid := r.cmd.Process.Pid
	if s.create, s.createCPU, err = timed(ctx, pid, l.Create); err != nil {
		return s, err
	}
	select { // what is not needed to run the pods costs as well
	case <-time.After(b.settle):
	case <-ctx.Done():
		return s, ctx.Err()
	}
	if s.memory, err = gauge.RSS(pid); err != nil {
		return s, err
	}
	if profiled {
		if err := b.readProfile(ctx, id, "heap", "heap?gc=1"); err != nil {
			return s, err
		}
	}
	if s.delete, s.deleteCPU, err = timed(ctx, pid, l.Delete); err != nil {
		return s, err
	}
	after, err := gauge.ReadRequests(ctx, b.client)
	if err != nil {
		return s, err
	}
	s.requests = after.Since(before)
	s.requests[gauge.Request{Verb: "POST", Resource: "pods"}] -= b.pods // the load's own
	s.requests[gauge.Request{Verb: "DELETE", Resource: "pods"}] -= b.pods
	return s, nil
}

// timed adds what a process used during a phase.
func timed(ctx context.Context, pid int, phase func(context.Context) (load.Phase, error)) (load.Phase, time.Duration, error) {
	before, err := gauge.CPU(pid)
	if err != nil {
		return load.Phase{}, 0, err
	}
	p, err := phase(ctx)
	if err != nil {
		return p, 0, err
	}
	after, err := gauge.CPU(pid)
	return p, after - before, err
}

func (b *podsBench) newNamespace(ctx context.Context, name string) error {
	_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
