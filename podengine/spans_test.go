package podengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/trace"
	"github.com/virtual-kubelet/virtual-kubelet/trace/opentelemetry"
)

// traced has the spans of a test recorded.
func traced(t *testing.T) *tracetest.InMemoryExporter {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	before := trace.T
	trace.T = opentelemetry.Adapter{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
	t.Cleanup(func() { trace.T = before })
	return spans
}

// call has the node call the engine, in a span.
func (r *rig) call(name string, call func(context.Context, *corev1.Pod) error, pod *corev1.Pod) {
	r.t.Helper()
	ctx, span := trace.StartSpan(r.ctx, name)
	defer span.End()
	if err := call(ctx, pod); err != nil {
		r.t.Fatal(err)
	}
}

// tree is a trace as lines of "name attribute duration", indented below the span
// that they are part of, in the order of their begin.
func tree(spans tracetest.SpanStubs, root string) []string {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var lines []string
	var add func(span tracetest.SpanStub, indent string)
	add = func(span tracetest.SpanStub, indent string) {
		line := indent + span.Name
		for _, a := range span.Attributes {
			if a.Key == attributeContainer || a.Key == attributeImage {
				line += " " + a.Value.AsString()
			}
		}
		if span.Status.Code == codes.Error {
			line += " failed"
		}
		lines = append(lines, fmt.Sprint(line, " ", span.EndTime.Sub(span.StartTime)))
		for _, s := range spans {
			if s.Parent.SpanID() == span.SpanContext.SpanID() {
				add(s, indent+"  ")
			}
		}
	}
	for _, s := range spans {
		if s.Name == root && !s.Parent.SpanID().IsValid() {
			add(s, "")
		}
	}
	return lines
}

func wantTree(t *testing.T, spans *tracetest.InMemoryExporter, root string, want ...string) {
	t.Helper()
	if got := tree(spans.GetSpans(), root); !slices.Equal(got, want) {
		t.Errorf("the trace is\n%q\nwant\n%q", got, want)
	}
}

// A trace shows what a pod waits for.
func TestTracesOfAPodsLife(t *testing.T) {
	inBubble(t, func(r *rig) {
		spans := traced(t)
		r.images.pull = func(context.Context, string) error { time.Sleep(5 * time.Second); return nil }
		r.runtime.exec = func(context.Context, string, []string) error { time.Sleep(2 * time.Second); return nil }
		r.runtime.plans["i"] = plan{runs: 3 * time.Second}
		r.runtime.plans["a"] = plan{lingers: time.Minute}
		pod := makePod("i a", first(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: command("bye")}}
		}))
		r.call("CreatePod", r.CreatePod, pod)
		r.after(time.Minute)
		r.wantState(pod, "Running i=Completed/0 a=ready")
		wantTree(t, spans, "CreatePod",
			"CreatePod 0s",
			"  acceptPod 0s",
			"    makeSandbox 0s",
			"      prepareVolumes 0s",
			"      RunPodSandbox 0s",
			"    startContainer i 5s",
			"      ensureImage image:1 5s",
			"      CreateContainer 0s",
			"      StartContainer 0s",
			"    startContainer a 0s",
			"      ensureImage image:1 0s",
			"      CreateContainer 0s",
			"      StartContainer 0s",
		)
		for _, span := range spans.GetSpans() {
			if span.Name == "startContainer" && !slices.Contains(span.Attributes, attribute.String(attributeUID, string(pod.UID))) {
				t.Errorf("a span does not say which pod it is about: %v", span.Attributes)
			}
		}

		spans.Reset()
		gone := pod.DeepCopy()
		gone.DeletionTimestamp = &gone.CreationTimestamp
		seconds := int64(10)
		gone.DeletionGracePeriodSeconds = &seconds
		r.call("DeletePod", r.DeletePod, gone)
		r.after(time.Minute)
		r.wantGone(pod)
		wantTree(t, spans, "DeletePod",
			"DeletePod 0s",
			"  acceptDeletion 0s",
			"    stopPod 10s",
			"      runHook a 2s",
			"      StopContainer 8s",
			"      StopPodSandbox 0s",
			"    cleanUpPod 0s",
			"      StopPodSandbox 0s",
			"      RemoveContainer 0s",
			"      RemoveContainer 0s",
			"      RemovePodSandbox 0s",
		)
	})
}

// What was not asked for is a trace of its own: else that of a pod that lives for
// weeks, or never comes up, has no end.
func TestRestartsAndFurtherTriesAreTracesOfTheirOwn(t *testing.T) {
	inBubble(t, func(r *rig) {
		spans := traced(t)
		r.images.pull = func(context.Context, string) error { return errors.New("no such image") }
		pod := makePod("a")
		r.call("CreatePod", r.CreatePod, pod)
		r.after(time.Minute)
		wantTree(t, spans, "CreatePod",
			"CreatePod 0s",
			"  acceptPod 0s",
			"    makeSandbox 0s",
			"      prepareVolumes 0s",
			"      RunPodSandbox 0s",
			"    startContainer a failed 0s",
			"      ensureImage image:1 failed 0s",
		)
		if tries := tree(spans.GetSpans(), "startContainer"); len(tries) < 2 || tries[0] != "startContainer a failed 0s" {
			t.Errorf("the further tries are %q", tries)
		}

		r.images.mu.Lock()
		r.images.pull = nil
		r.images.mu.Unlock()
		r.after(5 * time.Minute)
		r.wantState(pod, "Running a=ready")
		spans.Reset()
		r.runtime.exit(r.runtime.newest("a").Id, 1)
		r.after(time.Minute)
		r.wantState(pod, "Running a=ready#1")
		wantTree(t, spans, "startContainer",
			"startContainer a 0s",
			"  ensureImage image:1 0s",
			"  CreateContainer 0s",
			"  StartContainer 0s",
		)

		// What is asked for later has its trace again.
		spans.Reset()
		newer := pod.DeepCopy()
		newer.Spec.Containers[0].Image = "image:2"
		r.call("UpdatePod", r.UpdatePod, newer)
		r.after(time.Minute)
		wantTree(t, spans, "UpdatePod",
			"UpdatePod 0s",
			"  acceptUpdate 0s",
			"    killContainer a 0s",
			"      StopContainer 0s",
			"    startContainer a 0s",
			"      RemoveContainer 0s", // the one before the last
			"      ensureImage image:2 0s",
			"      CreateContainer 0s",
			"      StartContainer 0s",
		)
	})
}

// So is each further try to remove what is left of a pod.
func TestFurtherTriesToCleanUpAreTracesOfTheirOwn(t *testing.T) {
	inBubble(t, func(r *rig) {
		spans := traced(t)
		pod := makePod("a")
		r.create(pod)
		r.runtime.intercept(func(_ context.Context, call string) error {
			if strings.HasPrefix(call, "RemovePodSandbox") {
				return errors.New("busy")
			}
			return nil
		})
		r.call("DeletePod", r.DeletePod, pod)
		r.after(10 * time.Second)
		cleanings := 0
		for _, line := range tree(spans.GetSpans(), "DeletePod") {
			if strings.Contains(line, "cleanUpPod") {
				cleanings++
			}
		}
		if further := tree(spans.GetSpans(), "cleanUpPod"); cleanings != 1 || len(further) == 0 {
			t.Errorf("%d tries are part of the deletion's trace, want one; the further ones are %q", cleanings, further)
		}
		r.runtime.intercept(nil)
		r.after(2 * time.Second)
		r.wantGone(pod)
	})
}
