//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// What somebody with a collector sees of a pod: its start is one trace, from the
// watch event to the API's having that it runs, and its end is another.
func TestTracesOfAPod(t *testing.T) {
	received := collectSpans(t)
	n, ns := startNode(t), newNamespace(t)
	spec := podSpec(n)
	kubectl(t, "-n", ns, "create", "configmap", "settings", "--from-literal=COLOR=blue")
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	pod := createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	start := wholeTrace(t, received, pod, "writeStatus", "Running")
	spanTree(t, start, pod, n.name, "syncPod[waitForWorker GetPod resolveEnvironment CreatePod writeStatus[waitForWorker]]")

	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForGone(t, pod)
	end := wholeTrace(t, received, pod, "removePod", "")
	// The status is due when the watch shows the deletion, for the observed
	// generation, or, if that was handled before, when the provider reports the end.
	spanTree(t, end, pod, n.name, "syncPod[waitForWorker DeletePod writeStatus[waitForWorker] removePod[waitForWorker]]",
		"syncPod[waitForWorker writeStatus[waitForWorker] DeletePod removePod[waitForWorker]]")
	if string(start[0].GetTraceId()) == string(end[0].GetTraceId()) {
		t.Error("the pod's start and its end are one trace")
	}
}

// The trace goes on where containers are started: what a user sees who asks why a
// pod takes so long.
func TestTracesOfTheContainersOfAPod(t *testing.T) {
	received := collectSpans(t)
	n, ns := startNode(t, processes(t)...), newNamespace(t)
	spec := podSpec(n)
	spec.AutomountServiceAccountToken = ptr.To(false) // the account of this node may not make tokens
	spec.Containers[0].Command = []string{"sleep", "1000"}
	pod := createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	spans := wholeTrace(t, received, pod, "writeStatus", "Running")
	below := byParent(spans)
	for _, span := range spans {
		if span.GetName() != "CreatePod" {
			continue
		}
		const want = "acceptPod[makeSandbox[prepareVolumes RunPodSandbox] startContainer[ensureImage CreateContainer StartContainer]]"
		if got := drawTree(below, string(span.GetSpanId())); got != want {
			t.Errorf("below CreatePod is %s, want %s", got, want)
		}
		return
	}
	t.Error("there is no span CreatePod")
}

// collectSpans has the nodes that the test starts send their spans.
func collectSpans(t *testing.T) *spanCollector {
	t.Helper()
	received := &spanCollector{}
	server := httptest.NewServer(received)
	t.Cleanup(server.Close) // after the node has ended, and sent its last
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
	return received
}

// wholeTrace waits for a trace of a pod that ends with a span of this name, and
// with this phase if one is given, and whose spans have all arrived.
func wholeTrace(t *testing.T, received *spanCollector, pod *corev1.Pod, last, phase string) (spans []*tracepb.Span) {
	t.Helper()
	eventually(t, "the trace up to "+last+" has arrived", func(context.Context) (bool, string) {
		spans = received.traceWith(last, func(span *tracepb.Span) bool {
			return attributeOf(span, "k8s.pod.uid") == string(pod.UID) && (phase == "" || attributeOf(span, "phase") == phase)
		})
		rooted := slices.ContainsFunc(spans, func(span *tracepb.Span) bool { return len(span.GetParentSpanId()) == 0 })
		return rooted, fmt.Sprintf("%d spans have", len(spans))
	})
	return spans
}

// spanTree fails the test unless the spans are all about the pod, begin and end
// within their order, and are one of the trees, in which a span's children are in
// brackets, in the order in which they begin.
func spanTree(t *testing.T, spans []*tracepb.Span, pod *corev1.Pod, node string, wants ...string) {
	t.Helper()
	for _, span := range spans {
		about := []string{attributeOf(span, "k8s.namespace.name"), attributeOf(span, "k8s.pod.name"), attributeOf(span, "k8s.pod.uid")}
		if !slices.Equal(about, []string{pod.Namespace, pod.Name, string(pod.UID)}) {
			t.Errorf("%s is about %v", span.GetName(), about)
		}
		if name := attributeOf(span, "k8s.node.name"); name != node && name != "" {
			t.Errorf("%s is of the node %q", span.GetName(), name)
		}
		if took := time.Duration(span.GetEndTimeUnixNano() - span.GetStartTimeUnixNano()); took < 0 || took > patience {
			t.Errorf("%s took %v", span.GetName(), took)
		}
	}
	if got := drawTree(byParent(spans), ""); !slices.Contains(wants, got) {
		t.Errorf("the trace is %s, want %s", got, strings.Join(wants, " or "))
	}
}

// byParent has the spans below each, by its ID.
func byParent(spans []*tracepb.Span) map[string][]*tracepb.Span {
	below := map[string][]*tracepb.Span{}
	for _, span := range spans {
		parent := string(span.GetParentSpanId())
		below[parent] = append(below[parent], span)
	}
	return below
}

func drawTree(below map[string][]*tracepb.Span, parent string) string {
	spans := below[parent]
	slices.SortStableFunc(spans, func(a, b *tracepb.Span) int {
		return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano())
	})
	var drawn []string
	for _, span := range spans {
		text := span.GetName()
		if within := drawTree(below, string(span.GetSpanId())); within != "" {
			text += "[" + within + "]"
		}
		drawn = append(drawn, text)
	}
	return strings.Join(drawn, " ")
}
