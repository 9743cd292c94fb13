package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	dto "github.com/prometheus/client_model/go"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func noPods(context.Context) ([]*v1.Pod, error) { return nil, nil }

func noLogs(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
	return nil, nil
}

func TestUnsetFunctionsAreNotImplemented(t *testing.T) {
	server := servePods(t, api.PodHandlerConfig{})
	for path, missing := range map[string]string{
		"/pods":                   "GetPods (see node/api.PodListerFunc)",
		"/pods/":                  "GetPods (see node/api.PodListerFunc)",
		"/runningpods/":           "GetPods (see node/api.PodListerFunc)",
		"/containerLogs/ns/p/c":   "GetContainerLogs (see node/api.ContainerLogsHandlerFunc)",
		"/exec/ns/p/c":            "RunInContainer (see node/api.ContainerExecHandlerFunc)",
		"/exec/ns/p/uid/c":        "RunInContainer (see node/api.ContainerExecHandlerFunc)",
		"/attach/ns/p/c":          "AttachToContainer (see node/api.ContainerAttachHandlerFunc)",
		"/attach/ns/p/uid/c":      "AttachToContainer (see node/api.ContainerAttachHandlerFunc)",
		"/portForward/ns/p":       "PortForward (see node/api.PortForwardHandlerFunc)",
		"/portForward/ns/p/uid":   "PortForward (see node/api.PortForwardHandlerFunc)",
		"/stats/summary":          "GetStatsSummary (see node/api.PodStatsSummaryHandlerFunc)",
		"/stats/summary/":         "GetStatsSummary (see node/api.PodStatsSummaryHandlerFunc)",
		"/metrics/resource":       "GetMetricsResource (see node/api.PodMetricsResourceHandlerFunc)",
		"/stats/summary?anything": "GetStatsSummary",
	} {
		do(t, server, "GET", path).want(t, http.StatusNotImplemented, "provider does not implement "+missing)
	}
}

func TestRoutes(t *testing.T) {
	server := servePods(t, api.PodHandlerConfig{GetPods: noPods, GetContainerLogs: noLogs})
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/pods", 200},
		{"GET", "/pods/", 200},
		{"GET", "/pods/x", 404},
		{"HEAD", "/pods", 405},
		{"POST", "/pods", 405},
		{"DELETE", "/containerLogs/ns/p/c", 405},
		{"PUT", "/exec/ns/p/c", 405},
		{"HEAD", "/exec/ns/p/c", 405},
		{"POST", "/metrics/resource", 405},
		{"POST", "/stats/summary", 501},
		{"PUT", "/stats/summary", 405},
		{"GET", "/runningpods", 307},
		{"GET", "/stats", 307},
		{"GET", "/stats/", 404},
		{"GET", "/", 404},
		{"GET", "/spec/", 404},
		{"GET", "/metrics", 404},
		{"GET", "/containerLogs/ns/p", 404},
		{"GET", "/containerLogs/ns/p/c", 200},
		{"GET", "/containerLogs/ns/p/../../pods", 307},
		{"GET", "/containerLogs/ns/p/%2e%2e", 400},
		{"GET", "/containerLogs/ns/..%2f..%2fpods/c", 400},
		{"GET", "/containerLogs/ns/p/c%00", 400},
		{"GET", "/containerLogs/NS/p/c", 400},
		{"GET", "/containerLogs/ns/p_/c", 400},
		{"GET", "/containerLogs/ns/p.with.dots/c", 200},
		{"GET", "/containerLogs/ns/p/c.d", 400},
		{"GET", "/containerLogs/ns/p/" + strings.Repeat("c", 64), 400},
	} {
		got := do(t, server, c.method, c.path)
		if got.StatusCode != c.status {
			t.Errorf("%s %s: got %d %q, want %d", c.method, c.path, got.StatusCode, got.body, c.status)
		}
		if c.status == 405 && got.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow header", c.method, c.path)
		}
	}
	if got := do(t, server, "GET", "/runningpods").Header.Get("Location"); got != "/runningpods/" {
		t.Errorf("/runningpods is redirected to %q", got)
	}
}

func TestWithoutDebugNoRunningPods(t *testing.T) {
	server := serve(t, api.PodHandler(api.PodHandlerConfig{GetPods: noPods}, false))
	do(t, server, "GET", "/runningpods/").want(t, http.StatusNotFound, "not found")
	do(t, server, "GET", "/pods").want(t, http.StatusOK, "PodList")
}

func TestMetricsRoutes(t *testing.T) {
	both := http.NewServeMux()
	api.AttachPodRoutes(api.PodHandlerConfig{GetPods: noPods}, both, false)
	api.AttachPodMetricsRoutes(api.PodMetricsConfig{
		GetStatsSummary:    func(context.Context) (*stats.Summary, error) { return nil, nil },
		GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) { return nil, nil },
	}, both)
	server := serve(t, both)
	do(t, server, "GET", "/stats/summary").want(t, 200, `"pods":[]`)
	do(t, server, "GET", "/metrics/resource").want(t, 200, "")
	do(t, server, "GET", "/pods").want(t, 200, "PodList")

	single := serve(t, api.PodStatsSummaryHandler(nil))
	do(t, single, "GET", "/stats/summary").want(t, 501, "GetStatsSummary")
	do(t, single, "GET", "/metrics/resource").want(t, 404, "")
	single = serve(t, api.PodMetricsResourceHandler(nil))
	do(t, single, "GET", api.MetricsResourceRouteSuffix).want(t, 501, "GetMetricsResource")
	do(t, single, "GET", "/stats/summary").want(t, 404, "")
}

func TestVariablesOfBothRouters(t *testing.T) {
	handler := api.HandleContainerLogs(func(_ context.Context, namespace, pod, container string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(namespace + "," + pod + "," + container)), nil
	})
	gorilla := mux.NewRouter()
	gorilla.HandleFunc("/l/{namespace}/{pod}/{container}", handler)
	standard := http.NewServeMux()
	standard.HandleFunc("/l/{namespace}/{pod}/{container}", handler)
	for _, router := range []http.Handler{gorilla, standard} {
		server := serve(t, router)
		do(t, server, "GET", "/l/a/b/c").want(t, 200, "a,b,c")
		do(t, server, "GET", "/l/a/B/c").want(t, 400, `invalid pod "B"`)
	}
	incomplete := serve(t, handler)
	do(t, incomplete, "GET", "/").want(t, 400, `invalid namespace ""`)
}

func TestProviderErrors(t *testing.T) {
	base := errors.New("what happened")
	for _, c := range []struct {
		err        error
		status     int
		retryAfter string
	}{
		{base, 500, ""},
		{fmt.Errorf("deep down: %w", errdefs.AsNotFound(base)), 404, ""},
		{errdefs.AsInvalidInput(base), 400, ""},
		{fmt.Errorf("what happened: %w", errors.ErrUnsupported), 501, ""},
		{errdefs.AsConflict(base), 409, ""},
		{errdefs.AsUnavailable(base), 503, ""},
		{errdefs.AsPermanent(base), 422, ""},
		{errdefs.AsRetryAfter(base, 1500*time.Millisecond), 429, "2"},
	} {
		failing := api.PodHandlerConfig{
			GetPods: func(context.Context) ([]*v1.Pod, error) { return nil, c.err },
			GetContainerLogs: func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
				return nil, c.err
			},
			GetStatsSummary:    func(context.Context) (*stats.Summary, error) { return nil, c.err },
			GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) { return nil, c.err },
		}
		server := servePods(t, failing)
		for _, path := range []string{"/pods", "/runningpods/", "/containerLogs/ns/p/c", "/stats/summary", "/metrics/resource"} {
			got := do(t, server, "GET", path)
			got.want(t, c.status, "what happened")
			if h := got.Header.Get("Retry-After"); h != c.retryAfter {
				t.Errorf("%s: Retry-After is %q, want %q", path, h, c.retryAfter)
			}
			if h := got.Header.Get("Content-Type"); !strings.HasPrefix(h, "text/plain") {
				t.Errorf("%s: Content-Type is %q", path, h)
			}
		}
	}
}

func TestPanickingProvider(t *testing.T) {
	config := api.PodHandlerConfig{
		GetPods: func(context.Context) ([]*v1.Pod, error) { panic("not today") },
		GetContainerLogs: func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
			panic("not today")
		},
		GetStatsSummary:    func(context.Context) (*stats.Summary, error) { panic("not today") },
		GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) { panic("not today") },
	}
	for _, server := range []http.Handler{api.PodHandler(config, true), api.InstrumentHandler(api.PodHandler(config, true))} {
		server := serve(t, server)
		for _, path := range []string{"/pods", "/runningpods/", "/containerLogs/ns/p/c", "/stats/summary", "/metrics/resource"} {
			got := do(t, server, "GET", path)
			got.want(t, 500, "provider panicked")
			if strings.Contains(got.body, "goroutine") || strings.Contains(got.body, "not today") {
				t.Errorf("%s: the answer has what belongs in the log: %q", path, got.body)
			}
		}
	}
}
