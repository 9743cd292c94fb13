package nodecheck

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var web = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}

func TestListHeld(t *testing.T) {
	const list = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"default","name":"web"}}]}`
	for _, served := range []string{RunningPodsPath, PodsPath} {
		n := onServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/nodes/node/proxy"+served {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(list))
		})
		pods, err := n.ListHeld(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if FindPod(pods, web) == nil {
			t.Errorf("%s: the pod is not found in %v", served, pods)
		}
		other := web.DeepCopy()
		if other.Name = "db"; FindPod(pods, other) != nil {
			t.Errorf("%s: another pod is found in %v", served, pods)
		}
	}
}

// A provider that keeps any one of many pods is found, not only one that keeps the last.
func TestWaitNoneHeld(t *testing.T) {
	n := onServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"default","name":"web"}}]}`))
	})
	n.Patience = time.Second
	db := web.DeepCopy()
	db.Name = "db"
	if err := n.waitNoneHeld(t.Context(), []*corev1.Pod{web, db}); err == nil || !strings.Contains(err.Error(), "no longer lists pod web") {
		t.Errorf("got %v", err)
	}
	if err := n.waitNoneHeld(t.Context(), []*corev1.Pod{db}); err != nil {
		t.Error(err)
	}
}

func TestInSummary(t *testing.T) {
	for body, good := range map[string]bool{
		`{"node":{"nodeName":"node"},"pods":[{"podRef":{"name":"web","namespace":"default"}}]}`:  true,
		`{"node":{"nodeName":"node"},"pods":[{"podRef":{"name":"web","namespace":"other"}}]}`:    false,
		`{"node":{"nodeName":"other"},"pods":[{"podRef":{"name":"web","namespace":"default"}}]}`: false,
		`no JSON`: false,
	} {
		if err := inSummary([]byte(body), "node", web); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// metrics-server takes no container without any of the three.
func TestInMetrics(t *testing.T) {
	const (
		cpu    = "container_cpu_usage_seconds_total{container=\"main\",namespace=\"default\",pod=\"web\"} 1 1700000000000\n"
		memory = "container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"web\"} 1 1700000000000\n"
		start  = "container_start_time_seconds{container=\"main\",namespace=\"default\",pod=\"web\"} 1\n"
	)
	pod := web.DeepCopy()
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for body, missing := range map[string]string{
		cpu + memory + start: "",
		memory + start:       "container main has no container_cpu_usage_seconds_total",
		cpu + start:          "container main has no container_memory_working_set_bytes",
		cpu + memory:         "container main has no container_start_time_seconds",
		strings.ReplaceAll(cpu+memory+start, "main", "init"):                               "container main has no container_cpu",
		strings.ReplaceAll(cpu+memory+start, "web", "db"):                                  "container main has no container_cpu",
		"pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} 1 1700000000000\n": "container main has no container_cpu",
		"":      "container main has no container_cpu",
		"{{{\n": "text format",
	} {
		err := inMetrics([]byte(body), pod)
		if (err == nil) != (missing == "") || err != nil && !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v, want %q", body, err, missing)
		}
	}
	pod.Status.ContainerStatuses = nil
	if err := inMetrics([]byte(cpu+memory+start), pod); err == nil {
		t.Error("a pod of which no container is seen to run has what it needs")
	}
}
