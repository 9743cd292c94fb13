package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// The phases of a run.
const (
	creation = "create to Running"
	steady   = "rest with the pods"
	deletion = "delete to gone"
	cleaning = "rest without them"
)

var kubeletPhases = []string{creation, steady, deletion, cleaning}

// kubeletMeasures are the rows of the table.
func kubeletMeasures() (measures []report.Measure) {
	for _, phase := range kubeletPhases {
		measures = append(measures, report.Measure{Name: cpuOf(phase), Unit: "s"})
	}
	for _, phase := range []string{creation, deletion} {
		for _, p := range percentiles {
			measures = append(measures, report.Measure{Name: phase + ", " + p.name, Unit: "s"})
		}
	}
	for _, kind := range []string{"RSS", "RssAnon", "live heap"} {
		for _, when := range []string{beforePods, withPods} {
			measures = append(measures, report.Measure{Name: kind + " " + when, Unit: "MB"})
		}
	}
	for _, phase := range kubeletPhases {
		measures = append(measures, report.Measure{Name: requestsOf(phase)})
	}
	return measures
}

// When the memory is read.
const (
	beforePods = "before the pods"
	withPods   = "with the pods"
)

func cpuOf(phase string) string      { return "agent CPU, " + phase }
func requestsOf(phase string) string { return "API requests, " + phase }

var percentiles = []struct {
	name  string
	share float64
}{{"p50", 0.5}, {"p99", 0.99}}

// kubeletRun is a run of one agent.
type kubeletRun struct {
	*kubeletBench
	load   *load.Load
	agent  *running
	sample report.Sample
}

func (r *kubeletRun) all(ctx context.Context) error {
	wait := func(ctx context.Context) error { return sleep(ctx, r.period) }
	for _, step := range []func() error{
		func() error { return sleep(ctx, r.settle) },
		func() error { return r.memory(ctx, beforePods) },
		func() error { return r.during(ctx, creation, r.timing(creation, r.load.Create)) },
		func() error { return sleep(ctx, r.settle) },
		func() error { return r.during(ctx, steady, wait) },
		func() error { return r.memory(ctx, withPods) },
		func() error { return r.during(ctx, deletion, r.timing(deletion, r.load.Delete)) },
		func() error { return r.during(ctx, cleaning, wait) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// during records what the agent uses, and asks the API server for, while do runs.
func (r *kubeletRun) during(ctx context.Context, phase string, do func(context.Context) error) error {
	mark, err := r.audit.Mark()
	if err != nil {
		return err
	}
	before, err := r.agent.cpu()
	if err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	after, err := r.agent.cpu()
	if err != nil {
		return err
	}
	requests, _, err := r.audit.Since(mark, "")
	if err != nil {
		return err
	}
	r.sample.Values[cpuOf(phase)] = (after.all - before.all).Seconds()
	r.sample.Values[requestsOf(phase)] = 0
	for kind, count := range requests {
		r.sample.Values[requestsOf(phase)] += float64(count)
		r.sample.Requests[phase+": "+kind.String()] = float64(count)
	}
	r.step("%s: %.2f s of CPU, %.0f requests", phase, r.sample.Values[cpuOf(phase)], r.sample.Values[requestsOf(phase)])
	return nil
}

// timing is a phase of the load that records the latencies.
func (r *kubeletRun) timing(phase string, do func(context.Context) (load.Phase, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		took, err := do(ctx)
		if err != nil {
			return err
		}
		r.sample.Latencies[phase] = seconds(took.Latencies)
		for _, p := range percentiles {
			r.sample.Values[phase+", "+p.name] = took.Percentile(p.share).Seconds()
		}
		return nil
	}
}

// memory records what the agent has in memory: first as it is, then what a
// collection of the garbage leaves.
func (r *kubeletRun) memory(ctx context.Context, when string) error {
	rss, err := r.agent.rss()
	if err != nil {
		return err
	}
	r.sample.Values["RSS "+when] = megabytes(rss.all.Now)
	r.sample.Values["RssAnon "+when] = megabytes(rss.all.Anonymous)
	profile, err := r.profileOf(ctx, r.agent.nodes[0], "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return err
	}
	heap, err := heapIn(profile)
	r.sample.Values["live heap "+when] = megabytes(heap)
	return err
}

var heapLine = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// heapIn returns the size of the heap that a profile of it in text says, in bytes.
func heapIn(profile []byte) (int64, error) {
	line := heapLine.FindSubmatch(profile)
	if line == nil {
		return 0, fmt.Errorf("the profile of the heap does not say how large it is")
	}
	return strconv.ParseInt(string(line[1]), 10, 64)
}
