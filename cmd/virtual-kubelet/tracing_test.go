package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// received is a collector of traces, as OTLP over HTTP has it.
type received struct {
	mu       sync.Mutex
	resource map[string]string
	spans    []string
}

func (c *received) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resource = map[string]string{}
	for _, of := range request.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			c.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, span.GetName())
			}
		}
	}
}

// traceWith parses the flags, with the environment set, traces one span, and
// returns what a collector got.
func traceWith(t *testing.T, env map[string]string, args ...string) *received {
	t.Helper()
	return traceWithLater(t, "", env, args...)
}

// traceWithLater traces another span with another rate of sampling, too.
func traceWithLater(t *testing.T, later string, env map[string]string, args ...string) *received {
	t.Helper()
	var got received
	server := httptest.NewServer(&got)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_TRACES_EXPORTER", "") // read by the exporter
	for name, value := range env {
		if value == "COLLECTOR" {
			value = server.URL
		}
		t.Setenv(name, value)
	}
	before := trace.T
	t.Cleanup(func() { trace.T = before; otel.SetTracerProvider(noop.NewTracerProvider()) })
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(flags, os.Getenv)
	if err := flags.Parse(append([]string{"--provider", "mock"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	o.live = newLive(&o)
	stop, err := setUpTracing(t.Context(), &o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, span := trace.StartSpan(context.Background(), "work")
	span.End()
	if later != "" {
		o.live.use(parsed(t, "--provider", "mock", "--trace-sample-rate", later))
		_, span = trace.StartSpan(context.Background(), "later")
		span.End()
	}
	stop() // which sends them
	return &got
}

// Traces are sampled as the file says now, not as it did at the start.
func TestSamplingFollowsTheRateInForce(t *testing.T) {
	collector := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "COLLECTOR"}
	for _, c := range []struct{ first, later, want string }{
		{"never", "always", "later"}, {"never", "100", "later"}, {"always", "never", "work"}, {"100", "0", "work"},
	} {
		t.Run(c.first+" "+c.later, func(t *testing.T) {
			if got := traceWithLater(t, c.later, collector, "--trace-sample-rate", c.first); !slices.Equal(got.spans, []string{c.want}) {
				t.Errorf("the collector got the spans %v, want %s", got.spans, c.want)
			}
		})
	}
}

func TestStandardVariablesTurnTracingOn(t *testing.T) {
	got := traceWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "COLLECTOR", "OTEL_SERVICE_NAME": "mine",
		"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}, "--nodename", "n1")
	if len(got.spans) != 1 || got.spans[0] != "work" {
		t.Fatalf("the collector got the spans %v, want one", got.spans)
	}
	for key, want := range map[string]string{"service.name": "mine", "deployment.environment.name": "test", "k8s.node.name": "n1"} {
		if got.resource[key] != want {
			t.Errorf("%s is %q, want %q", key, got.resource[key], want)
		}
	}
}

func TestFlagsOfTracingGoBeforeVariables(t *testing.T) {
	got := traceWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "COLLECTOR", "OTEL_TRACES_EXPORTER": "none", "OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_off"},
		"--trace-exporter", "otlp", "--trace-service-name", "theirs", "--trace-tag", "env=ci", "--trace-sample-rate", "always")
	if len(got.spans) != 1 || got.resource["service.name"] != "theirs" || got.resource["env"] != "ci" {
		t.Errorf("the collector got the spans %v of %v", got.spans, got.resource)
	}
}

func TestTracingThatNobodyWants(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing is set":      {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
		"no exporter":         {"OTEL_EXPORTER_OTLP_ENDPOINT": "COLLECTOR", "OTEL_TRACES_EXPORTER": "none"},
		"the SDK is disabled": {"OTEL_EXPORTER_OTLP_ENDPOINT": "COLLECTOR", "OTEL_SDK_DISABLED": "true"},
		"nothing is sampled":  {"OTEL_EXPORTER_OTLP_ENDPOINT": "COLLECTOR", "OTEL_TRACES_SAMPLER": "always_off"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := traceWith(t, env); len(got.spans) != 0 {
				t.Errorf("the collector got %v", got.spans)
			}
		})
	}
}

// The traces of --trace-exporter stdout are on the standard output, and logs are not.
func TestTracesGoToStandardOutput(t *testing.T) {
	noCluster(t)
	before, logger := trace.T, log.L
	defer func() { trace.T, log.L = before, logger; otel.SetTracerProvider(noop.NewTracerProvider()) }()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, span := trace.StartSpan(context.Background(), "request")
		span.End()
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{clusters: [{name: a, cluster: {server: "` + server.URL + `"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := execute(t, "--provider", "mock", "--trace-exporter", "stdout", "--kubeconfig", kubeconfig, "--startup-timeout", "1s")
	if !strings.Contains(stdout, `"Name":"request"`) || strings.Contains(stdout, "Using cluster") {
		t.Errorf("the standard output has %s", stdout)
	}
	if strings.Contains(stderr, `"Name":"request"`) || !strings.Contains(stderr, "Using cluster") {
		t.Errorf("the log has %s", stderr)
	}
}
