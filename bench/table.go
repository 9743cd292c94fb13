package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
)

// The agents that are always measured.
const (
	floorName = "floor"
	ourName   = "virtual-kubelet"
)

// sample is what one run of one agent took.
type sample struct {
	create, delete       load.Phase
	createCPU, deleteCPU time.Duration
	memory               gauge.Memory
	requests             gauge.Requests // but for those of the load
}

func (s sample) String() string {
	return fmt.Sprintf("created %.0f/s with %v of CPU, deleted %.0f/s with %v of CPU, %.1f writes a pod, %d MB",
		s.create.Throughput(), s.createCPU, s.delete.Throughput(), s.deleteCPU, s.writes(), s.memory.Now>>20)
}

// writes is the number of an agent's writes for each pod over its whole life.
func (s sample) writes() float64 {
	sum := 0
	for kind, count := range s.requests {
		switch kind.Verb {
		case "POST", "PUT", "PATCH", "DELETE":
			if kind.Resource == "events" || strings.HasPrefix(kind.Resource, "pods") {
				sum += count
			}
		}
	}
	return float64(sum) / float64(len(s.create.Latencies))
}

// rows are what the table has of a sample.
var rows = []struct {
	name, unit string
	value      func(sample) float64
}{
	{"agent CPU, create to Running", "s", func(s sample) float64 { return s.createCPU.Seconds() }},
	{"agent CPU, delete to gone", "s", func(s sample) float64 { return s.deleteCPU.Seconds() }},
	{"create throughput", "pods/s", func(s sample) float64 { return s.create.Throughput() }},
	{"create to Running, p50", "s", func(s sample) float64 { return s.create.Percentile(0.5).Seconds() }},
	{"create to Running, p90", "s", func(s sample) float64 { return s.create.Percentile(0.9).Seconds() }},
	{"create to Running, p99", "s", func(s sample) float64 { return s.create.Percentile(0.99).Seconds() }},
	{"delete throughput", "pods/s", func(s sample) float64 { return s.delete.Throughput() }},
	{"delete to gone, p50", "s", func(s sample) float64 { return s.delete.Percentile(0.5).Seconds() }},
	{"delete to gone, p90", "s", func(s sample) float64 { return s.delete.Percentile(0.9).Seconds() }},
	{"delete to gone, p99", "s", func(s sample) float64 { return s.delete.Percentile(0.99).Seconds() }},
	{"API writes per pod, whole life", "", sample.writes},
	{"RSS with the pods running", "MB", func(s sample) float64 { return float64(s.memory.Now) / 1e6 }},
	{"RSS, highest", "MB", func(s sample) float64 { return float64(s.memory.Peak) / 1e6 }},
}

// table is the medians of all agents; the floor comes first.
func (b *podsBench) table(samples map[string][]sample) [][]string {
	names := []string{floorName}
	for name := range samples {
		if name != floorName {
			names = append(names, name)
		}
	}
	slices.Sort(names[1:])
	head := []string{fmt.Sprintf("%d pods", b.pods), floorName}
	for _, name := range names[1:] {
		head = append(head, name, "ratio")
	}
	table := [][]string{head}
	for _, row := range rows {
		base := median(samples[floorName], row.value)
		line := []string{strings.TrimSuffix(row.name+", "+row.unit, ", "), format(base)}
		for _, name := range names[1:] {
			value := median(samples[name], row.value)
			line = append(line, format(value), format(value/base))
		}
		table = append(table, line)
	}
	return table
}

func median(samples []sample, value func(sample) float64) float64 {
	values := make([]float64, 0, len(samples))
	for _, s := range samples {
		values = append(values, value(s))
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 0 {
		return (values[mid-1] + values[mid]) / 2
	}
	return values[mid]
}

func format(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// report writes the table to stdout, and the requests behind it.
func (b *podsBench) report(stdout io.Writer, samples map[string][]sample) error {
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, line := range b.table(samples) {
		fmt.Fprintln(out, strings.Join(line, "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	for name, all := range samples {
		fmt.Fprintf(stdout, "\nrequests with %s, in its last round:\n", name)
		last := all[len(all)-1].requests
		kinds := make([]gauge.Request, 0, len(last))
		for kind := range last {
			kinds = append(kinds, kind)
		}
		slices.SortFunc(kinds, func(a, b gauge.Request) int { return last[b] - last[a] })
		for _, kind := range kinds[:min(len(kinds), 12)] {
			fmt.Fprintf(stdout, "  %6d %s\n", last[kind], kind)
		}
	}
	return nil
}
