package main

import (
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// The measures of pods that are used elsewhere too.
const (
	createCPU        = "agent CPU, create to Running"
	deleteCPU        = "agent CPU, delete to gone"
	createThroughput = "create throughput"
	deleteThroughput = "delete throughput"
	podWrites        = "API writes per pod, whole life"
	runningRSS       = "RSS with the pods running"
	podsLeft         = "pods that the agent counts afterwards"
)

// The shares of the process that serves the provider.
const (
	providerCreateCPU = "of it the provider's process, create"
	providerDeleteCPU = "of it the provider's process, delete"
	providerRSS       = "of it the provider's process"
)

// rssGoal is how many MB a node of this many plain pods is to take at most, or nil.
func rssGoal(pods int) *report.Goal {
	switch {
	case pods <= 1000:
		return report.AtMost(60)
	case pods <= 5000:
		return report.AtMost(75)
	case pods <= 10000:
		return report.AtMost(100)
	}
	return nil
}

// measures are the rows of the table, with the goals for plain pods.
func (b *podsBench) measures() []report.Measure {
	measures := []report.Measure{
		{Name: createCPU, Unit: "s", Goal: report.AtMostOfFloor(1.25)},
		{Name: deleteCPU, Unit: "s", Goal: report.AtMostOfFloor(1.35)},
		{Name: createThroughput, Unit: "pods/s", Goal: report.AtLeastOfFloor(0.95)},
		{Name: "create to Running, p50", Unit: "s"},
		{Name: "create to Running, p90", Unit: "s"},
		{Name: "create to Running, p99", Unit: "s"},
		{Name: deleteThroughput, Unit: "pods/s"},
		{Name: "delete to gone, p50", Unit: "s"},
		{Name: "delete to gone, p90", Unit: "s"},
		{Name: "delete to gone, p99", Unit: "s", Goal: report.AtMostOfFloor(1.2)},
		{Name: podWrites, Goal: report.AtMost(3)},
		{Name: runningRSS, Unit: "MB", Goal: rssGoal(b.pods)},
		{Name: "RSS, highest", Unit: "MB"},
		{Name: "allocated per pod", Unit: "KB"},
		{Name: "objects allocated per pod"},
		{Name: "live heap before the pods", Unit: "MB"},
		{Name: "live heap with the pods", Unit: "MB"},
		{Name: "live heap when they are gone", Unit: "MB"},
		{Name: "goroutines before the pods"},
		{Name: "goroutines when they are gone"},
		{Name: podsLeft, Goal: report.AtMost(0)},
	}
	if b.remote {
		var all []report.Measure
		for _, m := range measures {
			all = append(all, m)
			switch m.Name {
			case createCPU:
				all = append(all, report.Measure{Name: providerCreateCPU, Unit: "s"})
			case deleteCPU:
				all = append(all, report.Measure{Name: providerDeleteCPU, Unit: "s"})
			case runningRSS:
				all = append(all, report.Measure{Name: providerRSS, Unit: "MB"})
			}
		}
		measures = all
	}
	if b.shape != "plain" || b.remote { // the goals are for plain pods, of which another table has them
		for i := range measures {
			measures[i].Goal = nil
		}
	}
	return measures
}

// sample is what the run took, for the table.
func (r *podsRun) sample() report.Sample {
	pods := float64(r.pods)
	requests := r.ofAgent()
	values := map[string]float64{
		createCPU: r.create.cpu.all.Seconds(), deleteCPU: r.delete.cpu.all.Seconds(),
		createThroughput: r.create.Throughput(), deleteThroughput: r.delete.Throughput(),
		podWrites:      sum(requests, isPodWrite) / pods,
		runningRSS:     megabytes(r.running.all.Now),
		"RSS, highest": megabytes(max(r.running.all.Peak, r.after.all.Peak)),
	}
	if r.agent.provider != nil {
		values[providerCreateCPU], values[providerDeleteCPU] = r.create.cpu.provider.Seconds(), r.delete.cpu.provider.Seconds()
		values[providerRSS] = megabytes(r.running.provider.Now)
	}
	for name, p := range map[string]phase{"create to Running": r.create, "delete to gone": r.delete} {
		for suffix, share := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
			values[name+", "+suffix] = p.Percentile(share).Seconds()
		}
	}
	set := func(name string, m gauge.Metrics, metric string, unit float64) {
		if v, ok := m[metric]; ok {
			values[name] = v / unit
		}
	}
	set("live heap before the pods", r.empty, heapBytes, 1e6)
	set("live heap with the pods", r.full, heapBytes, 1e6)
	set("live heap when they are gone", r.left, heapBytes, 1e6)
	set("goroutines before the pods", r.empty, goroutines, 1)
	set("goroutines when they are gone", r.left, goroutines, 1)
	set(podsLeft, r.left, podsHeld, 1)
	if before, ok := r.empty[allocatedBytes]; ok {
		values["allocated per pod"] = (r.done[allocatedBytes] - before) / 1e3 / pods
		values["objects allocated per pod"] = (r.done[allocatedObjects] - r.empty[allocatedObjects]) / pods
	}
	s := report.Sample{Values: values, Requests: map[string]float64{}, Latencies: map[string][]float64{
		"create to Running": seconds(r.create.Latencies), "delete to gone": seconds(r.delete.Latencies),
	}}
	for kind, count := range requests {
		s.Requests[kind.String()] = float64(count) / pods
	}
	return s
}

// ofAgent are the requests without the load's own.
func (r *podsRun) ofAgent() gauge.Requests {
	requests := gauge.Requests{}
	own := gauge.Requests{
		{Verb: "POST", Resource: "pods"}: r.pods, {Verb: "DELETE", Resource: "pods"}: r.pods,
		{Verb: "LIST", Resource: "pods"}: 2, {Verb: "WATCH", Resource: "pods"}: 2,
	}
	for kind, count := range r.requests {
		if count -= own[kind]; count > 0 {
			requests[kind] = count
		}
	}
	return requests
}

func isWrite(k gauge.Request) bool {
	switch k.Verb {
	case "POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION":
		return true
	}
	return false
}

func isPodWrite(k gauge.Request) bool {
	return isWrite(k) && (k.Resource == "pods" || strings.HasPrefix(k.Resource, "pods/"))
}

func sum(requests gauge.Requests, of func(gauge.Request) bool) float64 {
	total := 0
	for kind, count := range requests {
		if of(kind) {
			total += count
		}
	}
	return float64(total)
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

func seconds(durations []time.Duration) []float64 {
	var all []float64
	for _, d := range durations {
		all = append(all, d.Round(10*time.Microsecond).Seconds())
	}
	return all
}
