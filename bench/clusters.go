package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// clustersBench runs pods on a node that is another cluster, in which the floor runs
// what comes there.
type clustersBench struct {
	rig
	pods    int
	workers int
	rounds  int
	liqo    string
	settle  time.Duration
	period  time.Duration
	there   *rig
}

func newClustersCommand() *cobra.Command {
	b := &clustersBench{}
	command := &cobra.Command{
		Use:   "clusters",
		Short: "Run pods in another cluster, with provider kubernetes and with Liqo in turns",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.pods < 1 || b.workers < 1 || b.rounds < 1 || b.period <= 0 {
				return errors.New("--pods, --workers and --rounds must be 1 at least, and --for positive")
			}
			return b.run(cmd, fmt.Sprintf("clusters-%d", b.pods), true, b.scenario)
		},
	}
	flags := command.Flags()
	b.addFlags(flags)
	flags.IntVar(&b.pods, "pods", 50, "number of pods")
	flags.IntVar(&b.workers, "workers", 20, "requests of the load at a time")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each agent is measured; the table has the medians")
	flags.StringVar(&b.liqo, "liqo", "", "directory with Liqo, as \"make liqo\" fills it (default: only provider kubernetes)")
	flags.DurationVar(&b.settle, "settle", 10*time.Second, "how long the node is Ready, and then how long the pods run, before what comes next is measured")
	flags.DurationVar(&b.period, "for", time.Minute, "how long the agent rests while the pods run, and when they are gone")
	return command
}

func (b *clustersBench) scenario(ctx context.Context) (result report.Result, err error) {
	stop, err := b.startThere(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	agents := []agent{b.ours()}
	if b.liqo != "" {
		agents = []agent{b.liqoAgent(), b.ours()}
	}
	result = report.Result{
		Title: fmt.Sprintf("%d pods in another cluster", b.pods), Measures: b.measures(), RequestUnit: "in all", Phases: phases,
		Conditions: []string{fmt.Sprintf("%d plain pods, %d workers create and delete, rounds: %d, at rest for %v, with audit logs",
			b.pods, b.workers, b.rounds, b.period)},
	}
	for i, a := range agents {
		result.Agents = append(result.Agents, report.Agent{Name: a.name, Floor: i == 0 && len(agents) > 1}) // what the other is compared with
	}
	for round := range b.rounds {
		for turn := range agents {
			i := (turn + round) % len(agents)
			s, err := b.measure(ctx, agents[i], round)
			if err != nil {
				return result, fmt.Errorf("%s, round %d: %w", agents[i].name, round+1, err)
			}
			result.Agents[i].Samples = append(result.Agents[i].Samples, s)
		}
	}
	return result, nil
}

// measures are the rows of the table.
func (b *clustersBench) measures() (measures []report.Measure) {
	for _, m := range phaseMeasures("RSS", "RssAnon") {
		measures = append(measures, m)
		if b.liqo != "" && (m.Name == cpuOf(creation) || m.Name == cpuOf(deletion)) {
			measures = append(measures, report.Measure{Name: m.Name + providersPart, Unit: m.Unit})
		}
	}
	return measures
}

// startThere starts the other cluster, with a node of the floor.
func (b *clustersBench) startThere(ctx context.Context) (stop func() error, err error) {
	b.there = &rig{bin: b.bin, dir: filepath.Join(b.dir, "there"), agentWorkers: b.agentWorkers, progress: b.progress}
	if err := os.Mkdir(b.there.dir, 0o755); err != nil {
		return nil, err
	}
	b.step("the control plane of the other cluster starts")
	end, err := b.there.startControlPlane(ctx, true)
	if err != nil {
		return nil, err
	}
	b.there.audit.Ours = floorName // and this program asks nothing of it while it measures
	floor, err := b.there.floor()
	if err != nil {
		return nil, errors.Join(err, end())
	}
	p, err := b.there.start(ctx, floor, nodeOf(floorName), 1)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return func() error { return errors.Join(p.stop(), end()) }, nil
}

// ours is virtual-kubelet with provider kubernetes.
func (b *clustersBench) ours() agent {
	return agent{name: "kubernetes", command: []string{filepath.Join(b.bin, "virtual-kubelet"), "--nodename", "NODE", "--kubeconfig", "KUBECONFIG",
		"--port", "0", "--disable-taint", "--provider", "kubernetes", "--provider-config", b.config("NODE")}}
}

func (b *clustersBench) config(node string) string { return filepath.Join(b.dir, node+".json") }

// liqoAgent is Liqo's virtual kubelet, with the controller that makes the pods in the other
// cluster as another process.
func (b *clustersBench) liqoAgent() agent {
	return agent{name: "liqo", command: []string{"bench/liqo.sh", b.liqo, "NODE", "KUBECONFIG", b.there.kubeconfig, "METRICS"},
		provider: []string{filepath.Join(b.liqo, "shadowpods"), "--kubeconfig", b.there.kubeconfig}}
}

// measure runs the pods once, on a node and in namespaces of their own.
func (b *clustersBench) measure(ctx context.Context, a agent, round int) (s report.Sample, err error) {
	b.step("round %d of %d, %s begins", round+1, b.rounds, a.name)
	id := nodeInRound(a.name, round)
	there := "home-" + id
	if err := errors.Join(b.newNamespace(ctx, id), b.there.newNamespace(ctx, there), writeJSON(b.config(id), map[string]any{
		"apiVersion": "kubernetes.virtual-kubelet.io/v1", "kind": "RemoteCluster", "cluster": "home", "remote": map[string]any{"kubeconfig": b.there.kubeconfig},
		"namespaces": map[string]any{"mapping": "prefix", "prefix": "home-"}, "capacity": map[string]any{"resources": map[string]string{"pods": "20000"}},
		"tokens": "disabled", // as Liqo has it where the clusters have no network in common
	})); err != nil {
		return s, err
	}
	p, err := b.start(ctx, a, id, 1)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.end(ctx, p)) }()
	run := &phasesRun{rig: &b.rig, settle: b.settle, period: b.period, agent: p, there: &b.there.audit, sample: newSample()}
	run.load = &load.Load{Client: b.client, Namespace: id, Nodes: p.nodes, Pods: b.pods, Workers: b.workers, Timeout: 10 * time.Minute}
	err = run.all(ctx)
	return run.sample, err
}
