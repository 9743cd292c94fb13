package vkubelet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// capable is a holder with all optional capabilities.
type capable struct{ holder }

func (*capable) GetContainerLogs(_ context.Context, namespace, pod, container string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("log of " + namespace + "/" + pod + "/" + container)), nil
}

func (*capable) RunInContainer(context.Context, string, string, string, []string, api.AttachIO) error {
	return nil
}

func (*capable) AttachToContainer(context.Context, string, string, string, api.AttachIO) error {
	return nil
}

func (*capable) PortForward(context.Context, string, string, int32, io.ReadWriteCloser) error {
	return nil
}

func (*capable) GetStatsSummary(context.Context) (*stats.Summary, error) {
	return &stats.Summary{Node: stats.NodeStats{NodeName: "node"}}, nil
}

func (*capable) GetMetricsResource(context.Context) ([]*dto.MetricFamily, error) {
	return api.ResourceMetricsFromSummary(&stats.Summary{}), nil
}

var _ interface {
	PodLogsProvider
	PodExecProvider
	PodAttachProvider
	PodPortForwardProvider
	PodMetricsProvider
	PodResourceMetricsProvider
} = (*capable)(nil)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

// routes are all the paths, with what a provider that has everything answers.
var routes = map[string]struct {
	status  int
	part    string
	builtin bool // needs no optional interface
}{
	"/pods":                        {200, `"name":"web"`, true},
	"/runningpods/":                {200, `"name":"web"`, true},
	"/containerLogs/default/web/c": {200, "log of default/web/c", false},
	"/exec/default/web/c":          {400, "", false}, // no upgrade was asked for
	"/attach/default/web/c":        {400, "", false},
	"/portForward/default/web":     {400, "", false},
	"/stats/summary":               {200, `"nodeName":"node"`, false},
	"/metrics/resource":            {200, "resource_scrape_error", false},
}

func TestPodHandler(t *testing.T) {
	full := &capable{}
	_ = full.CreatePod(t.Context(), newPod("default", "web", "node"))
	bare := &holder{}
	_ = bare.CreatePod(t.Context(), newPod("default", "web", "node"))
	attached := http.NewServeMux()
	AttachPodRoutes(full, attached)
	for path, want := range routes {
		for name, handler := range map[string]http.Handler{"PodHandler": PodHandler(full), "AttachPodRoutes": attached} {
			status, body := get(t, handler, path)
			if want.status == 400 && status != http.StatusNotImplemented {
				continue // what package api answers here is its own business
			}
			if status != want.status || !strings.Contains(body, want.part) {
				t.Errorf("%s: %s: %d %q", name, path, status, body)
			}
		}
		status, body := get(t, PodHandler(bare), path)
		if want.builtin && status != 200 || !want.builtin && status != http.StatusNotImplemented {
			t.Errorf("bare provider: %s: %d %q", path, status, body)
		}
		if status, body := get(t, PodHandler(nil), path); status != http.StatusNotImplemented {
			t.Errorf("no provider: %s: %d %q", path, status, body)
		}
	}
	if status, _ := get(t, attached, "/elsewhere"); status != http.StatusNotFound {
		t.Errorf("an unknown path answers %d", status)
	}
}

func TestMetrics(t *testing.T) {
	for _, path := range []string{"/stats/summary", "/metrics/resource"} {
		full, bare := http.NewServeMux(), http.NewServeMux()
		AttachMetricsRoutes(&capable{}, full)
		AttachMetricsRoutes(&holder{}, bare)
		if status, body := get(t, full, path); status != 200 || !strings.Contains(body, routes[path].part) {
			t.Errorf("%s: %d %q", path, status, body)
		}
		if status, _ := get(t, bare, path); status != http.StatusNotImplemented {
			t.Errorf("%s without metrics: %d", path, status)
		}
	}
	if status, _ := get(t, MetricsSummaryHandler(&capable{}), "/stats/summary"); status != 200 {
		t.Errorf("MetricsSummaryHandler answers %d", status)
	}
	for _, p := range []Provider{&holder{}, nil} {
		if status, _ := get(t, MetricsSummaryHandler(p), "/stats/summary"); status != http.StatusNotImplemented {
			t.Errorf("MetricsSummaryHandler without metrics answers %d", status)
		}
	}
}

// summing is a holder with a summary and nothing else.
type summing struct{ holder }

func (*summing) GetStatsSummary(context.Context) (*stats.Summary, error) {
	return &stats.Summary{Node: stats.NodeStats{NodeName: "node"}}, nil
}

// What nodeutil.AsProvider adds to a provider is not among what it can do.
func TestHandlersOfAsProvider(t *testing.T) {
	attached := http.NewServeMux()
	AttachMetricsRoutes(nodeutil.AsProvider(&summing{}), attached)
	for name, handler := range map[string]http.Handler{"PodHandler": PodHandler(nodeutil.AsProvider(&summing{})), "AttachMetricsRoutes": attached} {
		if status, body := get(t, handler, "/metrics/resource"); status != 200 {
			t.Errorf("%s: the metrics are not made from the summary: %d %q", name, status, body)
		}
	}
}

func TestPlainHandlers(t *testing.T) {
	for want, h := range map[int]http.HandlerFunc{404: NotFound, 501: NotImplemented} {
		if status, _ := get(t, InstrumentHandler(h), "/"); status != want {
			t.Errorf("got %d, want %d", status, want)
		}
	}
}
