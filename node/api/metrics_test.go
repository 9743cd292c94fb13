package api_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/api/statsv1alpha1"
)

func goldenSummary(t *testing.T) *statsv1alpha1.Summary {
	t.Helper()
	summary := &statsv1alpha1.Summary{}
	if err := json.Unmarshal(golden(t, "stats_summary.json"), summary); err != nil {
		t.Fatal(err)
	}
	return summary
}

func summaryOf(s *stats.Summary) api.PodHandlerConfig {
	return api.PodHandlerConfig{GetStatsSummary: func(context.Context) (*stats.Summary, error) { return s, nil }}
}

func TestSummary(t *testing.T) {
	server := servePods(t, summaryOf(goldenSummary(t)))
	for _, method := range []string{"GET", "POST"} {
		got := do(t, server, method, "/stats/summary")
		sameJSON(t, []byte(got.body), golden(t, "stats_summary.json"))
		if h := got.Header.Get("Content-Type"); h != "application/json" {
			t.Errorf("Content-Type is %q", h)
		}
	}
}

func TestSummaryOfCPUAndMemory(t *testing.T) {
	summary := goldenSummary(t)
	before, _ := json.Marshal(summary)
	got := do(t, servePods(t, summaryOf(summary)), "GET", "/stats/summary?only_cpu_and_memory=true").body
	for _, kept := range []string{"usageCoreNanoSeconds", "workingSetBytes", `"name":"smoke"`, `"nodeName":"ref-node"`, `"name":"pods"`} {
		if !strings.Contains(got, kept) {
			t.Errorf("%s is missing in %s", kept, got)
		}
	}
	for _, dropped := range []string{`"network"`, `"fs"`, `"rootfs"`, `"logs"`, `"volume"`, `"swap"`, `"io"`, `"rlimit"`, `"runtime"`, "ephemeral-storage", "process_stats"} {
		if strings.Contains(got, dropped) {
			t.Errorf("%s is in %s", dropped, got)
		}
	}
	if after, _ := json.Marshal(summary); string(after) != string(before) {
		t.Error("the provider's summary was changed")
	}
}

func TestNilSummaryAndMetrics(t *testing.T) {
	config := summaryOf(nil)
	config.GetMetricsResource = func(context.Context) ([]*dto.MetricFamily, error) { return nil, nil }
	server := servePods(t, config)
	for _, path := range []string{"/stats/summary", "/stats/summary?only_cpu_and_memory=true"} {
		got := do(t, server, "GET", path)
		got.want(t, 200, `"pods":[]`)
		var summary stats.Summary
		if err := json.Unmarshal([]byte(got.body), &summary); err != nil {
			t.Error(err)
		}
	}
	got := do(t, server, "GET", "/metrics/resource")
	if got.StatusCode != 200 || got.body != "" || got.Header.Get("Content-Type") != api.PrometheusTextFormatContentType {
		t.Errorf("got %d %q with %v", got.StatusCode, got.body, got.Header)
	}
}

func TestMetricsKeepTheProvidersLabelOrder(t *testing.T) {
	name, kind, value, empty := "m", dto.MetricType_GAUGE, 1.0, "empty"
	label := func(n, v string) *dto.LabelPair { return &dto.LabelPair{Name: &n, Value: &v} }
	families := []*dto.MetricFamily{
		nil,
		{Name: &empty, Type: &kind},
		{Name: &name, Type: &kind, Metric: []*dto.Metric{
			nil,
			{Gauge: &dto.Gauge{Value: &value}, Label: []*dto.LabelPair{label("node", "n"), label("pod", "p"), label("container", "c")}},
		}},
	}
	server := servePods(t, api.PodHandlerConfig{GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) { return families, nil }})
	got := do(t, server, "GET", "/metrics/resource").body
	if want := "# TYPE m gauge\n" + `m{node="n",pod="p",container="c"} 1` + "\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnencodableMetricsAreAnError(t *testing.T) {
	server := servePods(t, api.PodHandlerConfig{GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) {
		return []*dto.MetricFamily{{Metric: []*dto.Metric{{}}}}, nil
	}})
	do(t, server, "GET", "/metrics/resource").want(t, 500, "no name")
}

var number = regexp.MustCompile(`(?m)^([^#].*) [-+.e0-9]+( [0-9]+)?$`)

// shape is metrics without the numbers: names, help, types, labels, and which
// have a timestamp.
func shape(text string) string {
	return number.ReplaceAllStringFunc(text, func(line string) string {
		m := number.FindStringSubmatch(line)
		if m[2] != "" {
			return m[1] + " V T"
		}
		return m[1] + " V"
	})
}

func TestResourceMetricsFromSummaryLikeTheKubelet(t *testing.T) {
	summary := goldenSummary(t)
	server := servePods(t, api.PodHandlerConfig{GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) {
		return api.ResourceMetricsFromSummary(summary), nil
	}})
	got := do(t, server, "GET", "/metrics/resource").body
	want := string(golden(t, "metrics_resource.txt"))
	if shape(got) != shape(want) {
		t.Errorf("got\n%s\nwant the shape of\n%s", got, want)
	}
	if want := `container_cpu_usage_seconds_total{container="b",namespace="default",pod="smoke"} 0.144100658 1795226762000`; !strings.Contains(got, want) {
		t.Errorf("%s is missing in\n%s", want, got)
	}
}

func TestResourceMetricsFromNothing(t *testing.T) {
	for _, c := range []struct {
		summary *stats.Summary
		failed  float64
	}{{nil, 1}, {&stats.Summary{}, 0}, {&stats.Summary{Pods: []stats.PodStats{{Containers: []stats.ContainerStats{{CPU: &stats.CPUStats{}}}}}}, 0}} {
		families := api.ResourceMetricsFromSummary(c.summary)
		if len(families) != 1 || families[0].GetName() != "resource_scrape_error" || families[0].Metric[0].GetGauge().GetValue() != c.failed {
			t.Errorf("got %v", families)
		}
	}
}
