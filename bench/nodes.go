package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// nodesBench registers nodes, creates pods on them and lets them rest.
type nodesBench struct {
	rig
	nodes   int
	pods    int
	workers int
	settle  time.Duration
	period  time.Duration
}

func newNodesCommand() *cobra.Command {
	b := &nodesBench{}
	command := &cobra.Command{
		Use:   "nodes",
		Short: "Register nodes, create pods on them, and see what they cost at rest, with the floor and with virtual-kubelet",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.nodes < 1 || b.pods < 0 || b.workers < 1 || b.period <= 0 {
				return errors.New("--nodes and --workers must be 1 at least, --pods not negative and --for positive")
			}
			return b.run(cmd, fmt.Sprintf("nodes-%d-pods-%d", b.nodes, b.pods), true, b.scenario)
		},
	}
	flags := command.Flags()
	b.addFlags(flags)
	flags.IntVar(&b.nodes, "nodes", 1, "number of nodes of each agent")
	flags.IntVar(&b.pods, "pods", 1000, "number of pods over all nodes, 0 for none")
	flags.IntVar(&b.workers, "workers", 20, "requests of the load at a time")
	flags.DurationVar(&b.settle, "settle", 90*time.Second, "how long they run before the rest begins")
	flags.DurationVar(&b.period, "for", 3*time.Minute, "how long they rest")
	return command
}

// The measures of nodes.
const (
	nodesReady     = "until all nodes are Ready"
	readyCPU       = "agent CPU until then"
	readyRequests  = "API requests per node to start"
	idleRequests   = "at rest: API requests a minute"
	idleCPU        = "at rest: agent CPU a minute"
	idleRSS        = "at rest: RSS"
	idleHeap       = "at rest: live heap"
	idleGoroutines = "at rest: goroutines"
	createP99      = "create to Running, p99"
	deleteP99      = "delete to gone, p99"
)

func (b *nodesBench) measures() []report.Measure {
	measures := []report.Measure{
		{Name: nodesReady, Unit: "s"}, {Name: readyCPU, Unit: "s"}, {Name: readyRequests},
		{Name: idleRequests, Goal: report.AtMost(float64(7 * b.nodes))},
		{Name: idleCPU, Unit: "ms"}, {Name: idleRSS, Unit: "MB"}, {Name: idleHeap, Unit: "MB"}, {Name: idleGoroutines},
	}
	switch b.nodes {
	case 1:
		measures[5].Goal = rssGoal(b.pods)
	case 1000:
		measures[4].Goal, measures[5].Goal = report.AtMost(4700), report.AtMost(90)
	}
	if b.pods > 0 && b.nodes > 1 { // "bench pods" has more to say of one
		measures = append(measures, report.Measure{Name: createThroughput, Unit: "pods/s"}, report.Measure{Name: createP99, Unit: "s"},
			report.Measure{Name: createCPU, Unit: "s"}, report.Measure{Name: deleteThroughput, Unit: "pods/s"},
			report.Measure{Name: deleteP99, Unit: "s"}, report.Measure{Name: deleteCPU, Unit: "s"})
	}
	return measures
}

func (b *nodesBench) scenario(ctx context.Context) (report.Result, error) {
	floor, err := b.floor()
	if err != nil {
		return report.Result{}, err
	}
	ours := b.ours()
	if b.nodes > 1 {
		ours.command = append(ours.command, "--nodes", "NODES")
	}
	agents, err := b.agents(floor, ours)
	if err != nil {
		return report.Result{}, err
	}
	title := fmt.Sprintf("%d nodes with %d pods", b.nodes, b.pods)
	if b.nodes == 1 {
		title = fmt.Sprintf("One node with %d pods", b.pods)
	}
	result := report.Result{Title: title, Measures: b.measures(), RequestUnit: "a minute, at rest",
		Conditions: []string{fmt.Sprintf("at rest for %v, %v after the last pod was Running; one process, one round, with an audit log", b.period, b.settle)}}
	for _, a := range agents {
		s, err := b.measure(ctx, a)
		if err != nil {
			return result, fmt.Errorf("%s: %w", a.name, err)
		}
		result.Agents = append(result.Agents, report.Agent{Name: a.name, Floor: a.name == floorName, Samples: []report.Sample{s}})
		b.step("%s: Ready after %.2f s, at rest %.1f requests and %.0f ms of CPU a minute",
			a.name, s.Values[nodesReady], s.Values[idleRequests], s.Values[idleCPU])
	}
	return result, nil
}

// measure has one agent run the nodes.
func (b *nodesBench) measure(ctx context.Context, a agent) (s report.Sample, err error) {
	id := "bench-" + strings.ToLower(a.name)
	if err := b.newNamespace(ctx, id); err != nil {
		return s, err
	}
	s = report.Sample{Values: map[string]float64{}, Requests: map[string]float64{}}
	b.step("%s: registers %d nodes", a.name, b.nodes)
	p, err := b.register(ctx, a, id, s)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.end(ctx, p)) }()
	l := &load.Load{Client: b.client, Namespace: id, Nodes: p.nodes, Pods: b.pods, Workers: b.workers, Timeout: 30 * time.Minute}
	if b.pods > 0 {
		b.step("%s: creates %d pods", a.name, b.pods)
		create, err := timed(ctx, p, l.Create)
		if err != nil {
			return s, err
		}
		s.Values[createThroughput], s.Values[createP99], s.Values[createCPU] = create.Throughput(), create.Percentile(0.99).Seconds(), create.cpu.all.Seconds()
	}
	b.step("%s: rests for %v", a.name, b.settle+b.period)
	if err := b.rest(ctx, p, s); err != nil {
		return s, err
	}
	if b.pods > 0 {
		b.step("%s: deletes %d pods", a.name, b.pods)
		deletion, err := timed(ctx, p, l.Delete)
		if err != nil {
			return s, err
		}
		s.Values[deleteThroughput], s.Values[deleteP99], s.Values[deleteCPU] = deletion.Throughput(), deletion.Percentile(0.99).Seconds(), deletion.cpu.all.Seconds()
	}
	return s, nil
}

// register starts the agent, and measures until its nodes are Ready.
func (b *nodesBench) register(ctx context.Context, a agent, id string, s report.Sample) (*running, error) {
	mark, err := b.audit.Mark()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := b.start(ctx, a, id, b.nodes)
	if err != nil {
		return nil, err
	}
	s.Values[nodesReady] = time.Since(began).Seconds()
	cpu, err := p.cpu()
	if err != nil {
		return nil, errors.Join(err, b.end(ctx, p))
	}
	s.Values[readyCPU] = cpu.all.Seconds()
	// The record is a moment late, and not all is done when the node is Ready.
	err = sleep(ctx, 2*time.Second)
	requests, _, auditErr := b.audit.Since(mark, "")
	if err := errors.Join(err, auditErr); err != nil {
		return nil, errors.Join(err, b.end(ctx, p))
	}
	s.Values[readyRequests] = sum(requests, func(gauge.Request) bool { return true }) / float64(b.nodes)
	return p, nil
}

// rest measures what the agent does when there is nothing to do.
func (b *nodesBench) rest(ctx context.Context, p *running, s report.Sample) error {
	if err := sleep(ctx, b.settle); err != nil {
		return err
	}
	mark, err := b.audit.Mark()
	if err != nil {
		return err
	}
	before, err := p.cpu()
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.period); err != nil {
		return err
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	requests, _, err := b.audit.Since(mark, "")
	if err != nil {
		return err
	}
	memory, err := p.rss()
	if err != nil {
		return err
	}
	metrics, err := b.collected(ctx, p)
	if err != nil {
		return err
	}
	minutes := b.period.Minutes()
	for kind, count := range requests {
		s.Requests[kind.String()] = float64(count) / minutes
		s.Values[idleRequests] += float64(count) / minutes
	}
	s.Values[idleCPU] = (after.all - before.all).Seconds() * 1e3 / minutes
	s.Values[idleRSS] = megabytes(memory.all.Now)
	if heap, ok := metrics[heapBytes]; ok {
		s.Values[idleHeap], s.Values[idleGoroutines] = heap/1e6, metrics[goroutines]
	}
	return nil
}
