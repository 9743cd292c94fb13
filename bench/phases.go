package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
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

var phases = []string{creation, steady, deletion, cleaning}

// kubeletMeasures are the rows of the table.
func kubeletMeasures() []report.Measure { return phaseMeasures("RSS", "RssAnon", "live heap") }

// phaseMeasures are rows for each phase, and for the kinds of memory.
func phaseMeasures(memory ...string) (measures []report.Measure) {
	for _, phase := range phases {
		measures = append(measures, report.Measure{Name: cpuOf(phase), Unit: "s"})
	}
	for _, phase := range []string{creation, deletion} {
		for _, p := range percentiles {
			measures = append(measures, report.Measure{Name: phase + ", " + p.name, Unit: "s"})
		}
	}
	for _, kind := range memory {
		for _, when := range []string{beforePods, withPods} {
			measures = append(measures, report.Measure{Name: kind + " " + when, Unit: "MB"})
		}
	}
	for _, phase := range phases {
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

// phasesRun is a run of one agent.
type phasesRun struct {
	*rig
	settle, period time.Duration
	load           *load.Load
	agent          *running
	there          *gauge.Audit // of another cluster, if the agent asks that, too
	heap           bool         // the agent serves profiles through its node's API
	sample         report.Sample
}

func newSample() report.Sample {
	return report.Sample{Values: map[string]float64{}, Requests: map[string]float64{}, Latencies: map[string][]float64{}}
}

func (r *phasesRun) all(ctx context.Context) error {
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
func (r *phasesRun) during(ctx context.Context, phase string, do func(context.Context) error) error {
	count, err := r.counting(phase)
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
	r.sample.Values[cpuOf(phase)] = (after.all - before.all).Seconds()
	if r.agent.provider != nil {
		r.sample.Values[cpuOf(phase)+providersPart] = (after.provider - before.provider).Seconds()
	}
	if err := count(); err != nil {
		return err
	}
	r.step("%s: %.2f s of CPU, %.0f requests", phase, r.sample.Values[cpuOf(phase)], r.sample.Values[requestsOf(phase)])
	return nil
}

// counting begins to count requests, and returns what records how many there were.
func (r *phasesRun) counting(phase string) (func() error, error) {
	type place struct {
		audit gauge.Audit
		name  string // added to that of a resource
		mark  int64
	}
	places := []place{{audit: r.audit}}
	if r.there != nil {
		places = append(places, place{audit: *r.there, name: " there"})
	}
	for i := range places {
		var err error
		if places[i].mark, err = places[i].audit.Mark(); err != nil {
			return nil, err
		}
	}
	return func() error {
		r.sample.Values[requestsOf(phase)] = 0
		for _, p := range places {
			requests, _, err := p.audit.Since(p.mark, "")
			if err != nil {
				return err
			}
			for kind, count := range requests {
				r.sample.Values[requestsOf(phase)] += float64(count)
				r.sample.Requests[phase+": "+kind.String()+p.name] = float64(count)
			}
		}
		return nil
	}, nil
}

// providersPart is added to the name of a measure for the part of the other process.
const providersPart = ", of it there"

// timing is a phase of the load that records the latencies.
func (r *phasesRun) timing(phase string, do func(context.Context) (load.Phase, error)) func(context.Context) error {
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
func (r *phasesRun) memory(ctx context.Context, when string) error {
	rss, err := r.agent.rss()
	if err != nil {
		return err
	}
	r.sample.Values["RSS "+when] = megabytes(rss.all.Now)
	r.sample.Values["RssAnon "+when] = megabytes(rss.all.Anonymous)
	if !r.heap {
		return nil
	}
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
