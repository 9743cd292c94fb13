package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

// kubeletBench runs pods of containers on a node of the real kubelet and on one of
// provider cri, in turns, on one containerd.
type kubeletBench struct {
	rig
	pods    int
	workers int
	rate    float64
	rounds  int
	settle  time.Duration
	period  time.Duration
	runtime *containerd.Containerd
}

func newKubeletCommand() *cobra.Command {
	b := &kubeletBench{}
	command := &cobra.Command{
		Use:   "kubelet",
		Short: "Run pods of containers on a node of the real kubelet and on one of provider cri in turns (as root, with what \"make bench-kubelet\" builds)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.pods < 1 || b.workers < 1 || b.rounds < 1 || b.period <= 0 {
				return errors.New("--pods, --workers and --rounds must be 1 at least, and --for positive")
			}
			return b.run(cmd, fmt.Sprintf("kubelet-%d", b.pods), true, b.scenario)
		},
	}
	flags := command.Flags()
	b.addFlags(flags)
	flags.IntVar(&b.pods, "pods", 30, "number of pods, each a container that waits")
	flags.IntVar(&b.workers, "workers", 20, "requests of the load at a time")
	flags.Float64Var(&b.rate, "rate", 0, "most requests of the load a second, 0 for no limit")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each agent is measured; the table has the medians")
	flags.DurationVar(&b.settle, "settle", 15*time.Second, "how long the node is Ready, and then how long the pods run, before what comes next is measured")
	flags.DurationVar(&b.period, "for", time.Minute, "how long the agent rests while the pods run, and when they are gone")
	return command
}

// scenario measures both agents in turns.
func (b *kubeletBench) scenario(ctx context.Context) (result report.Result, err error) {
	b.step("containerd starts")
	b.runtime, err = containerd.Start(ctx, containerd.Options{
		Binary: filepath.Join(b.bin, "containerd-up"), SandboxImage: pauseImage,
		Images: []string{filepath.Join(b.bin, "conformance", "images.tar")}, LogFile: filepath.Join(b.dir, "containerd.log"),
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.runtime.Stop()) }()
	result = report.Result{
		Title: fmt.Sprintf("%d pods in containers on one node", b.pods), Measures: kubeletMeasures(), RequestUnit: "in all", Phases: phases,
		Conditions: []string{fmt.Sprintf("%d pods of a container that waits, %d workers create and delete, rounds: %d, at rest for %v, with an audit log",
			b.pods, b.workers, b.rounds, b.period)},
	}
	nodes := []containerNode{b.kubelet(), b.cri()}
	for i, n := range nodes {
		result.Agents = append(result.Agents, report.Agent{Name: n.agent.name, Floor: i == 0}) // what the other is compared with
	}
	for round := range b.rounds {
		for turn := range nodes {
			i := (turn + round) % len(nodes) // who comes first has the smaller etcd
			s, err := b.measure(ctx, nodes[i], round)
			if err != nil {
				return result, fmt.Errorf("%s, round %d: %w", nodes[i].agent.name, round+1, err)
			}
			result.Agents[i].Samples = append(result.Agents[i].Samples, s)
		}
	}
	return result, nil
}

// measure runs the pods once, on a node and in a namespace of their own.
func (b *kubeletBench) measure(ctx context.Context, n containerNode, round int) (s report.Sample, err error) {
	b.step("round %d of %d, %s begins", round+1, b.rounds, n.agent.name)
	id := nodeInRound(n.agent.name, round)
	if err := b.newNamespace(ctx, id); err != nil {
		return s, err
	}
	undo, err := n.prepare(id)
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return s, err
	}
	p, err := b.start(ctx, n.agent, id, 1)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.end(ctx, p)) }()
	run := &phasesRun{rig: &b.rig, settle: b.settle, period: b.period, agent: p, heap: true, sample: newSample()}
	run.load = &load.Load{Client: b.client, Namespace: id, Nodes: p.nodes, Pods: b.pods, Workers: b.workers, Rate: b.rate, Shape: waiting, Timeout: 10 * time.Minute}
	err = run.all(ctx)
	return run.sample, err
}

// pauseImage is in the archive of images.
const pauseImage = "localhost/pause:latest"

// waiting is the shape of a pod whose image is there.
func waiting(pod *corev1.Pod) {
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = pauseImage, corev1.PullIfNotPresent
}
