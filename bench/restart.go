package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// restartBench kills an agent whose pods run, and starts it again.
type restartBench struct {
	rig
	pods    int
	workers int
	settle  time.Duration
	quiet   time.Duration
}

func newRestartCommand() *cobra.Command {
	b := &restartBench{}
	command := &cobra.Command{
		Use:   "restart",
		Short: "Kill virtual-kubelet while pods run, start it again, and count what it asks until all is quiet",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.pods < 1 || b.workers < 1 || b.quiet <= 0 {
				return errors.New("--pods and --workers must be 1 at least, and --quiet positive")
			}
			return b.run(cmd, fmt.Sprintf("restart-%d", b.pods), true, b.scenario)
		},
	}
	flags := command.Flags()
	b.addFlags(flags)
	flags.IntVar(&b.pods, "pods", 5000, "number of pods")
	flags.IntVar(&b.workers, "workers", 20, "requests of the load at a time")
	flags.DurationVar(&b.settle, "settle", 10*time.Second, "how long the pods run before the agent is killed")
	flags.DurationVar(&b.quiet, "quiet", 20*time.Second, "the agent has settled once it has asked nothing for this time but to renew its lease")
	return command
}

// The measures of a restart.
const (
	settledAfter = "until the last request"
	settleCPU    = "agent CPU until then"
	podLists     = "lists of pods"
	podReads     = "reads of single pods"
	restartWrite = "writes to pods"
	otherWrites  = "other writes, but for the lease"
	podsCounted  = "pods that the agent counts"
	rssAfter     = "RSS"
	rssHighest   = "RSS, highest"
)

func (b *restartBench) scenario(ctx context.Context) (report.Result, error) {
	ours, err := b.withJournal()
	if err != nil {
		return report.Result{}, err
	}
	agents, err := b.agents(ours)
	if err != nil {
		return report.Result{}, err
	}
	result := report.Result{
		Title: fmt.Sprintf("Restart with %d pods running", b.pods), RequestUnit: "in all",
		Measures: []report.Measure{
			{Name: settledAfter, Unit: "s"}, {Name: settleCPU, Unit: "s"}, {Name: podLists, Goal: report.AtMost(1)},
			{Name: podReads, Goal: report.AtMost(0)}, {Name: restartWrite, Goal: report.AtMost(0)}, {Name: otherWrites},
			{Name: podsCounted, Goal: report.AtLeast(float64(b.pods))}, {Name: rssAfter, Unit: "MB"}, {Name: rssHighest, Unit: "MB"},
		},
		Conditions: []string{fmt.Sprintf("%d plain pods; killed with SIGKILL and started again at once; until nothing but the lease had been asked for %v; with an audit log", b.pods, b.quiet)},
	}
	for _, a := range agents {
		s, err := b.measure(ctx, a)
		if err != nil {
			return result, fmt.Errorf("%s: %w", a.name, err)
		}
		result.Agents = append(result.Agents, report.Agent{Name: a.name, Samples: []report.Sample{s}})
	}
	return result, nil
}

// withJournal is virtual-kubelet with a journal, in which the pods of the mock
// provider outlive it.
func (b *restartBench) withJournal() (agent, error) {
	return b.configured(map[string]string{"journal": filepath.Join(b.dir, "journal"), "pods": strconv.Itoa(b.pods)}, nodeOf(ourName))
}

func nodeOf(agent string) string { return "bench-" + strings.ToLower(agent) }

// measure starts one agent, creates the pods, and starts it again.
func (b *restartBench) measure(ctx context.Context, a agent) (s report.Sample, err error) {
	id := nodeOf(a.name)
	if err := b.newNamespace(ctx, id); err != nil {
		return s, err
	}
	p, err := b.start(ctx, a, id, 1)
	if err != nil {
		return s, err
	}
	nodes := p.nodes
	defer func() { // whichever of the two runs then
		if p != nil {
			p.nodes = nodes
			err = errors.Join(err, b.end(ctx, p))
		}
	}()
	b.step("%s: creates %d pods", a.name, b.pods)
	l := &load.Load{Client: b.client, Namespace: id, Nodes: nodes, Pods: b.pods, Workers: b.workers, Timeout: 20 * time.Minute}
	if _, err := l.Create(ctx); err != nil {
		return s, err
	}
	b.step("%s: %d pods run; killed in %v", a.name, b.pods, b.settle)
	if err := sleep(ctx, b.settle); err != nil {
		return s, err
	}
	if err := p.process.Stop(os.Kill); err != nil {
		return s, err
	}
	mark, err := b.audit.Mark()
	if err != nil {
		return s, err
	}
	began := time.Now()
	if p, err = b.launch(a, id, 1); err != nil {
		return s, err
	}
	b.step("%s: started again; measured until it has asked for nothing for %v", a.name, b.quiet)
	requests, last, err := b.settled(ctx, p, mark)
	if err != nil {
		return s, err
	}
	return b.sample(ctx, p, requests, last.Sub(began))
}

// settled waits until the agent has listed the pods and been quiet for a while.
func (b *restartBench) settled(ctx context.Context, p *running, mark int64) (requests gauge.Requests, last time.Time, err error) {
	err = wait.PollUntilContextTimeout(ctx, time.Second, 20*time.Minute, true, func(context.Context) (bool, error) {
		select {
		case <-p.process.Done():
			return false, fmt.Errorf("it has ended: see %s", p.log)
		default:
		}
		requests, last, err = b.audit.Since(mark, "leases")
		return sum(requests, isPodList) > 0 && time.Since(last) > b.quiet, err
	})
	if err != nil {
		err = fmt.Errorf("wait until the agent has settled: %w", err)
	}
	return requests, last, err
}

func (b *restartBench) sample(ctx context.Context, p *running, requests gauge.Requests, took time.Duration) (s report.Sample, err error) {
	cpu, err := p.cpu()
	if err != nil {
		return s, err
	}
	memory, err := p.rss()
	if err != nil {
		return s, err
	}
	metrics, err := b.metricsOf(ctx, p)
	if err != nil {
		return s, err
	}
	s = report.Sample{Requests: map[string]float64{}, Values: map[string]float64{
		settledAfter: took.Seconds(), settleCPU: cpu.all.Seconds(),
		podLists:     sum(requests, isPodList),
		podReads:     sum(requests, func(k gauge.Request) bool { return k == gauge.Request{Verb: "GET", Resource: "pods"} }),
		restartWrite: sum(requests, isPodWrite),
		otherWrites:  sum(requests, func(k gauge.Request) bool { return isWrite(k) && !isPodWrite(k) && k.Resource != "leases" }),
		rssAfter:     megabytes(memory.all.Now), rssHighest: megabytes(memory.all.Peak),
	}}
	if pods, ok := metrics[podsHeld]; ok {
		s.Values[podsCounted] = pods
	}
	for kind, count := range requests {
		s.Requests[kind.String()] = float64(count)
	}
	return s, nil
}

func isPodList(k gauge.Request) bool {
	return k.Resource == "pods" && (k.Verb == "LIST" || k.Verb == gauge.WatchList)
}
