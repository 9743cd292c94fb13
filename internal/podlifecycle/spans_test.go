package podlifecycle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opentelemetry"
)

// traced has the spans of the test recorded.
func traced(t *testing.T) *tracetest.InMemoryExporter {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	before := trace.T
	trace.T = opentelemetry.Adapter{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
	t.Cleanup(func() { trace.T = before })
	return spans
}

// named returns the last span of a name.
func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for i := len(spans) - 1; i >= 0; i-- {
		if spans[i].Name == name {
			return spans[i]
		}
	}
	t.Fatalf("there is no span %s", name)
	return tracetest.SpanStub{}
}

func wantBelow(t *testing.T, span, parent tracetest.SpanStub) {
	t.Helper()
	if span.SpanContext.TraceID() != parent.SpanContext.TraceID() || span.Parent.SpanID() != parent.SpanContext.SpanID() {
		t.Errorf("%s is not below %s", span.Name, parent.Name)
	}
}

// A change of a pod is one trace, through all queues: its creation until the API
// has that it runs, and its deletion until it has gone.
func TestAChangeIsOneTrace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		spans := traced(t)
		r.start()
		pod := r.api.AddPod(aPod("web"))
		pass(time.Second)
		made := spans.GetSpans()
		create := named(t, made, "CreatePod")
		write := named(t, made, "writeStatus")
		wantBelow(t, create, syncOf(t, made, create))
		wantBelow(t, write, syncOf(t, made, create))
		attributes := map[string]string{}
		for _, a := range syncOf(t, made, create).Attributes {
			attributes[string(a.Key)] = a.Value.AsString()
		}
		want(t, "attributes of the sync", attributes, map[string]string{"k8s.namespace.name": "default", "k8s.pod.name": "web",
			"k8s.pod.uid": string(pod.UID), "k8s.node.name": "vk"})

		spans.Reset()
		r.api.DeletePod("web")
		pass(time.Minute)
		ended := spans.GetSpans()
		stop := named(t, ended, "DeletePod")
		wantBelow(t, named(t, ended, "removePod"), syncOf(t, ended, stop))
		if stop.SpanContext.TraceID() == create.SpanContext.TraceID() {
			t.Error("creation and deletion are one trace")
		}
	})
}

// Where the time of a pod's start has gone: it waited for workers that were busy,
// then for the provider, and for the write of its status.
func TestATraceShowsWhereTheTimeWent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		spans := traced(t)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { time.Sleep(10 * time.Second); return nil }
		})
		r.start()
		for _, name := range []string{"a", "b", "c"} { // as many as there are workers
			r.api.AddPod(aPod(name))
		}
		pass(4 * time.Second)
		pod := r.api.AddPod(aPod("web"))
		pass(time.Minute)
		made := spans.GetSpans()
		created := named(t, slices.DeleteFunc(slices.Clone(made), func(s tracetest.SpanStub) bool { return !about(s, pod) }), "CreatePod")
		took := map[string]time.Duration{}
		for _, span := range made {
			if span.SpanContext.TraceID() != created.SpanContext.TraceID() {
				continue
			}
			if took[span.Name] += span.EndTime.Sub(span.StartTime); !about(span, pod) {
				t.Errorf("%s does not name the pod", span.Name)
			}
		}
		want(t, "what the spans of the trace took", took, map[string]time.Duration{"syncPod": 16 * time.Second, "waitForWorker": 6 * time.Second,
			"GetPod": 0, "resolveEnvironment": 0, "CreatePod": 10 * time.Second, "writeStatus": 0})
	})
}

// about reports whether a span names a pod.
func about(span tracetest.SpanStub, pod *corev1.Pod) bool {
	named := map[string]string{}
	for _, a := range span.Attributes {
		named[string(a.Key)] = a.Value.AsString()
	}
	return named[providercalls.AttributeNamespace] == pod.Namespace && named[providercalls.AttributePod] == pod.Name && named[providercalls.AttributeUID] == string(pod.UID)
}

// syncOf is the span in which a provider was called.
func syncOf(t *testing.T, spans tracetest.SpanStubs, call tracetest.SpanStub) tracetest.SpanStub {
	t.Helper()
	for _, span := range spans {
		if span.SpanContext.SpanID() == call.Parent.SpanID() {
			return span
		}
	}
	t.Fatalf("the span above %s was not recorded", call.Name)
	return tracetest.SpanStub{}
}

// What the provider reports long after is no part of the creation.
func TestLaterReportsAreTracesOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		spans := traced(t)
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		spans.Reset()
		r.provider.SetPhase("web", corev1.PodSucceeded)
		pass(time.Minute)
		if write := named(t, spans.GetSpans(), "writeStatus"); write.Parent.IsValid() {
			t.Error("the status of a pod that has ended is below the span of its creation")
		}
	})
}

// A line belongs to the innermost span, and is there once.
func TestALineIsInOneSpan(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		spans := traced(t)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(ctx context.Context, _ *corev1.Pod) error { log.G(ctx).Info("Made it"); return nil }
		})
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		in := map[string][]string{}
		for _, span := range spans.GetSpans() {
			for _, line := range span.Events {
				in[line.Name] = append(in[line.Name], span.Name)
			}
		}
		wantList(t, "the provider's line is in", in["Made it"], "CreatePod")
		wantList(t, "the line of the write is in", in["Wrote pod status"], "writeStatus")
	})
}

// A failed call is an error in its trace.
func TestFailuresAreTraced(t *testing.T) {
	spans := traced(t)
	_ = providercalls.Do(t.Context(), nil, providercalls.GetPods, providercalls.Pod{}, func(ctx context.Context) error {
		if !oteltrace.SpanContextFromContext(ctx).IsValid() {
			t.Error("the provider's method has no span in its context")
		}
		return errors.New("no")
	})
	want(t, "status", named(t, spans.GetSpans(), "GetPods").Status.Description, "no")
}
