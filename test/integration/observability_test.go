//go:build integration

package integration

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMetricsAddressIsServed(t *testing.T) {
	n, ns := startNode(t, "--metrics-addr", "127.0.0.1:0"), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	address := metricsAddress(t, n.log)
	for path, want := range map[string]string{
		"/metrics":          "rest_client_requests_total",
		"/metrics/resource": `container_cpu_usage_seconds_total{`,
		"/stats/summary":    `"nodeName":"` + n.name + `"`,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: status %d, %v; want %q in\n%.1000s", path, response.StatusCode, err, want, body)
		}
	}
}

// A trace goes from the decision into the provider, in one piece.
func TestTraces(t *testing.T) {
	n, ns := startNode(t, "--trace-exporter", "stdout", "--trace-service-name", "test", "--trace-tag", "env=ci", "--log-format", "json"), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	n.stop(t, syscall.SIGTERM) // which sends what is left
	log := n.log.String()
	span := regexp.MustCompile(`"Name":"CreatePod","SpanContext":{"TraceID":"([0-9a-f]+)"`).FindStringSubmatch(log)
	if span == nil {
		t.Fatal("no span of CreatePod was exported")
	}
	if !strings.Contains(log, `"Name":"syncPod","SpanContext":{"TraceID":"`+span[1]+`"`) {
		t.Error("the span of CreatePod does not belong to one of syncPod")
	}
	for _, want := range []string{`{"Key":"service.name","Value":{"Type":"STRING","Value":"test"}}`, `{"Key":"env","Value":{"Type":"STRING","Value":"ci"}}`, `"msg":"Node is ready"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the output has no %s", want)
		}
	}
	n.start(t)
}

// Debug logs name pods by keys, and hold no value of a Secret.
func TestSecretsStayOutOfTheLog(t *testing.T) {
	n, ns := startNode(t, "--v", "9"), newNamespace(t)
	kubectl(t, "-n", ns, "create", "secret", "generic", "s", "--from-literal=key=very-secret-value")
	spec := podSpec(n)
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
	createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	eventually(t, "the log speaks of the pod", func(context.Context) (bool, string) {
		return strings.Contains(n.log.String(), "pod=hello"), n.log.String()
	})
	if strings.Contains(n.log.String(), "very-secret-value") || strings.Contains(n.log.String(), "dmVyeS1zZWNyZXQtdmFsdWU") {
		t.Error("a secret's value is in the log")
	}
}
