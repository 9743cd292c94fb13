package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

var epoch = metav1.NewTime(time.Unix(1_000_000, 0))

func after(seconds int) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second))
}

func cpuOf(seconds uint64, at metav1.Time) *stats.CPUStats {
	nanos := seconds * uint64(time.Second)
	return &stats.CPUStats{Time: at, UsageCoreNanoSeconds: &nanos}
}

func memoryOf(bytes uint64, at metav1.Time) *stats.MemoryStats {
	return &stats.MemoryStats{Time: at, WorkingSetBytes: &bytes}
}

// values are the metrics by name and label values, with their timestamps in
// seconds after epoch.
func values(families []*dto.MetricFamily) map[string]string {
	found := map[string]string{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, label := range m.Label {
				key += " " + label.GetValue()
			}
			value := fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if m.TimestampMs != nil {
				value += fmt.Sprint(" @", (m.GetTimestampMs()-epoch.UnixMilli())/1000)
			}
			found[key] = value
		}
	}
	return found
}

func wantValues(t *testing.T, got, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %q, want %q", key, got[key], value)
		}
	}
}

// metrics-server drops nodes without figures, and containers without a start
// time: what the summary lacks is made from what it has.
func TestMissingFiguresAreSummedUp(t *testing.T) {
	summary := &stats.Summary{Pods: []stats.PodStats{
		{PodRef: stats.PodReference{Name: "b", Namespace: "ns"}, StartTime: after(7), Containers: []stats.ContainerStats{
			{Name: "y", CPU: cpuOf(3, after(10)), Memory: memoryOf(30, after(11))},
			{Name: "x", StartTime: after(8), CPU: cpuOf(4, after(12)), Memory: memoryOf(40, after(9))},
			{Name: "z"},
		}},
		{PodRef: stats.PodReference{Name: "a", Namespace: "ns"}, CPU: cpuOf(100, after(2)), Memory: memoryOf(1000, after(3)), Containers: []stats.ContainerStats{
			{Name: "x", CPU: cpuOf(1, after(2)), Memory: memoryOf(1, after(3))},
		}},
		{PodRef: stats.PodReference{Name: "none", Namespace: "ns"}},
	}}
	families := api.ResourceMetricsFromSummary(summary)
	got := values(families)
	wantValues(t, got, map[string]string{
		"node_cpu_usage_seconds_total":                 "107 @12",
		"node_memory_working_set_bytes":                "1070 @11",
		"pod_cpu_usage_seconds_total ns b":             "7 @12",
		"pod_memory_working_set_bytes ns b":            "70 @11",
		"pod_cpu_usage_seconds_total ns a":             "100 @2",
		"pod_memory_working_set_bytes ns a":            "1000 @3",
		"pod_cpu_usage_seconds_total ns none":          "",
		"container_start_time_seconds x ns b":          "1.000008e+06",
		"container_start_time_seconds y ns b":          "1.000007e+06", // the pod's
		"container_start_time_seconds x ns a":          "",
		"container_start_time_seconds z ns b":          "", // metrics-server would drop its pod
		"container_cpu_usage_seconds_total z ns b":     "",
		"container_cpu_usage_seconds_total x ns a":     "1 @2",
		"container_memory_working_set_bytes y ns b":    "30 @11",
		"resource_scrape_error":                        "0",
		"container_swap_limit_bytes x ns b":            "",
		"container_memory_working_set_bytes none ns b": "",
	})
	if summary.Node.CPU != nil || summary.Pods[0].CPU != nil || summary.Pods[0].Containers[0].StartTime.Unix() == after(7).Unix() {
		t.Error("the provider's summary was changed")
	}
	var order []string
	for _, m := range families[0].Metric {
		order = append(order, m.Label[0].GetValue()+m.Label[2].GetValue())
	}
	if fmt.Sprint(order) != "[xa xb yb]" {
		t.Errorf("the order is %v", order)
	}
}

func TestFiguresOfTheNodeStay(t *testing.T) {
	summary := &stats.Summary{
		Node: stats.NodeStats{CPU: cpuOf(1000, epoch), Memory: memoryOf(2000, epoch)},
		Pods: []stats.PodStats{{CPU: cpuOf(1, after(1)), Memory: memoryOf(1, after(1))}},
	}
	wantValues(t, values(api.ResourceMetricsFromSummary(summary)), map[string]string{
		"node_cpu_usage_seconds_total":  "1000 @0",
		"node_memory_working_set_bytes": "2000 @0",
	})
	summary.Node = stats.NodeStats{CPU: cpuOf(0, epoch), Memory: memoryOf(0, epoch)}
	wantValues(t, values(api.ResourceMetricsFromSummary(summary)), map[string]string{
		"node_cpu_usage_seconds_total":  "1 @1",
		"node_memory_working_set_bytes": "1 @1",
	})
	summary.Pods = nil
	wantValues(t, values(api.ResourceMetricsFromSummary(summary)), map[string]string{
		"node_cpu_usage_seconds_total":  "0 @0",
		"node_memory_working_set_bytes": "0 @0",
	})
}

// A counter that falls is an error to metrics-server: the node keeps what pods
// used that are gone.
func TestDerivedNodeCPUDoesNotFall(t *testing.T) {
	var pods []stats.PodStats
	server := servePods(t, api.PodHandlerConfig{GetStatsSummary: func(context.Context) (*stats.Summary, error) {
		return &stats.Summary{Pods: pods}, nil
	}})
	pod := func(uid string, seconds uint64) stats.PodStats {
		return stats.PodStats{PodRef: stats.PodReference{Name: "p", Namespace: "ns", UID: uid}, CPU: cpuOf(seconds, epoch)}
	}
	container := func(seconds uint64) stats.PodStats {
		return stats.PodStats{PodRef: stats.PodReference{Name: "q", Namespace: "ns"}, Containers: []stats.ContainerStats{{Name: "c", CPU: cpuOf(seconds, epoch)}}}
	}
	for i, step := range []struct {
		pods []stats.PodStats
		want string
	}{
		{nil, ""},
		{[]stats.PodStats{pod("1", 10), pod("2", 20)}, "30"},
		{[]stats.PodStats{pod("1", 11), pod("2", 20)}, "31"},
		{[]stats.PodStats{pod("2", 25)}, "36"},
		{[]stats.PodStats{pod("2", 25), pod("3", 4)}, "40"},
		{nil, "40"},
		{[]stats.PodStats{container(5)}, "45"},
		{[]stats.PodStats{container(1)}, "45"}, // restarted
		{[]stats.PodStats{container(2)}, "46"},
	} {
		pods = step.pods
		got := do(t, server, "GET", "/metrics/resource").body
		line := ""
		for _, l := range strings.Split(got, "\n") {
			if rest, ok := strings.CutPrefix(l, "node_cpu_usage_seconds_total "); ok {
				line, _, _ = strings.Cut(rest, " ")
			}
		}
		if line != step.want {
			t.Errorf("step %d: the node has used %q, want %q", i, line, step.want)
		}
	}
}

// A provider that has a summary needs no metrics of its own.
func TestResourceMetricsAreDerived(t *testing.T) {
	both := summaryOf(goldenSummary(t))
	metrics := func(p api.PodHandlerConfig) reply { return do(t, servePods(t, p), "GET", "/metrics/resource") }
	metrics(both).want(t, 200, "node_cpu_usage_seconds_total 5673.563912694 ")
	metrics(summaryOf(nil)).want(t, 200, "resource_scrape_error 1\n")
	metrics(api.PodHandlerConfig{GetStatsSummary: func(context.Context) (*stats.Summary, error) {
		return nil, errors.New("not today")
	}}).want(t, 200, "resource_scrape_error 1\n")
	both.GetMetricsResource = func(context.Context) ([]*dto.MetricFamily, error) { return nil, nil }
	if got := metrics(both); got.StatusCode != 200 || got.body != "" {
		t.Errorf("the provider's own metrics are not preferred: %s", got.body)
	}
}
