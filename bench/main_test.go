package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
)

func TestParseAgent(t *testing.T) {
	got, err := parseAgent("sim=bin/sim --node NODE --kubeconfig=KUBECONFIG")
	if want := (agent{"sim", []string{"bin/sim", "--node", "NODE", "--kubeconfig=KUBECONFIG"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "sim", "sim=", "=bin/sim"} {
		if _, err := parseAgent(text); err == nil {
			t.Errorf("%q is an agent", text)
		}
	}
}

func TestTable(t *testing.T) {
	phase := load.Phase{Took: time.Second, Latencies: []time.Duration{time.Second, 2 * time.Second}}
	run := func(cpu time.Duration, events int) sample {
		return sample{create: phase, delete: phase, createCPU: cpu, deleteCPU: cpu, memory: gauge.Memory{Now: 10e6, Peak: 20e6}, requests: gauge.Requests{
			{Verb: "PATCH", Resource: "pods/status"}: 2, {Verb: "DELETE", Resource: "pods"}: 2,
			{Verb: "POST", Resource: "events"}: events, {Verb: "PUT", Resource: "leases"}: 7, {Verb: "WATCH", Resource: "pods"}: 3,
		}}
	}
	b := &podsBench{pods: 2}
	var out bytes.Buffer
	if err := b.report(&out, map[string][]sample{
		floorName: {run(2*time.Second, 0)},
		ourName:   {run(9*time.Second, 1), run(3*time.Second, 1), run(4*time.Second, 1)},
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 pods floor virtual-kubelet ratio",
		"agent CPU, create to Running, s 2.00 4.00 2.00", // the median
		"create to Running, p99, s 2.00 2.00 1.00",
		"API writes per pod, whole life 2.00 2.50 1.25",
		"RSS, highest, MB 20.0 20.0 1.00",
		"2 PATCH pods/status",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
