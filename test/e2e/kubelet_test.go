package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// onServer is a suite whose API server answers with h.
func onServer(t *testing.T, h http.HandlerFunc) *EndToEndTestSuite {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	s := NewEndToEndTestSuite(EndToEndTestSuiteConfig{NodeName: "node"})
	s.client = client
	return s
}

func TestListHeld(t *testing.T) {
	const list = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"default","name":"web"}}]}`
	for _, served := range []string{runningPodsPath, podsPath} {
		s := onServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/nodes/node/proxy"+served {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(list))
		})
		pods, err := s.listHeld(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		if !hasPod(pods, web) {
			t.Errorf("%s: the pod is not found in %v", served, pods)
		}
		if web.Name = "db"; hasPod(pods, web) {
			t.Errorf("%s: another pod is found in %v", served, pods)
		}
	}
}

func TestWhatIsNotImplementedIsNotWaitedFor(t *testing.T) {
	s := onServer(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "provider does not implement GetStatsSummary", http.StatusNotImplemented)
	})
	_, err := s.getFromKubelet(t.Context(), statsPath)
	if err == nil || !hopeless(err) || !strings.Contains(err.Error(), "ShouldSkipTest") {
		t.Errorf("got %v", err)
	}
}

func TestCheckSummary(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	for body, good := range map[string]bool{
		`{"node":{"nodeName":"node"},"pods":[{"podRef":{"name":"web","namespace":"default"}}]}`:  true,
		`{"node":{"nodeName":"node"},"pods":[{"podRef":{"name":"web","namespace":"other"}}]}`:    false,
		`{"node":{"nodeName":"other"},"pods":[{"podRef":{"name":"web","namespace":"default"}}]}`: false,
		`no JSON`: false,
	} {
		if err := checkSummary([]byte(body), "node", pod); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestCheckMetrics(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	for body, good := range map[string]bool{
		"pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} 1 1700000000000\n": true,
		"pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"db\"} 1\n":                false,
		"":      false,
		"{{{\n": false,
	} {
		if err := checkMetrics([]byte(body), pod); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestCheckWaiting(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}},
	}}}}
	if err := checkWaiting(pod); err != nil {
		t.Error(err)
	}
	pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	if checkWaiting(pod) == nil {
		t.Error("a container that runs does not count")
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	if checkWaiting(pod) == nil {
		t.Error("a pod that runs does not count")
	}
}
