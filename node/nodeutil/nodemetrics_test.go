package nodeutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// scrape reads metrics as Prometheus does, and returns their text.
func scrape(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := ask(h, http.MethodGet, path)
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%s: got %d with %v", path, w.Code, w.Header())
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(w.Body.String())); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("%q is missing in\n%s", line, own(text))
		}
	}
}

// own are the lines about the node.
func own(text string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "kubelet_") && !strings.Contains(line, "_bucket") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// Dashboards and alerts that were written for kubelets have to find the same
// names, types and descriptions.
func TestMetricsAreNamedLikeTheKubelets(t *testing.T) {
	client := fake.NewSimpleClientset(pod("web", "vk"))
	mux := http.NewServeMux()
	start(t, client, making(&tiny{}), openTo(mux))
	eventually(t, "the pod is seen to start", func() bool {
		return strings.Contains(scrape(t, mux, "/metrics"), "\nkubelet_started_pods_total 1\n")
	})
	text := scrape(t, mux, "/metrics")
	golden, err := os.ReadFile("testdata/kubelet_metrics_names.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, line := range strings.Split(strings.TrimSpace(string(golden)), "\n") {
		nameAndType, help, _ := strings.Cut(line, "    ")
		name, kind, _ := strings.Cut(nameAndType, " ")
		wantLines(t, text, "# HELP "+name+" "+help, "# TYPE "+name+" "+kind)
		known++
	}
	if served := strings.Count(text, "# TYPE kubelet_"); served != known {
		t.Errorf("%d metrics have the kubelet's prefix, testdata has %d", served, known)
	}
	for _, name := range []string{"process_cpu_seconds_total", "go_goroutines"} {
		if !strings.Contains(text, "# TYPE "+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestMetricsOfPods(t *testing.T) {
	running, done, failed := pod("running", "vk"), pod("done", "vk"), pod("failed", "vk")
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning,
		InitContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}},
		ContainerStatuses:     []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}},
	}
	done.Status.Phase = corev1.PodSucceeded
	failed.Status.Phase = corev1.PodFailed
	mux, n := attachedTo(t, &tiny{}, nodeutil.WithClient(fake.NewSimpleClientset(running, done, failed)))
	nodeutil.WatchPods(testContext(t), n)
	wantLines(t, scrape(t, mux, "/metrics"),
		`kubelet_node_name{node="vk"} 1`,
		"kubelet_running_pods 1",
		`kubelet_running_containers{container_state="running"} 1`,
		`kubelet_running_containers{container_state="exited"} 1`,
		"kubelet_started_pods_total 0",
		`kubelet_desired_pods{static=""} 3`,
		`kubelet_active_pods{static=""} 1`,
		`vk_pods{phase="Pending"} 0`,
		`vk_pods{phase="Failed"} 1`,
		`vk_nodes{ready="true"} 0`,
		`vk_nodes{ready="false"} 1`,
		"kubelet_certificate_manager_server_ttl_seconds +Inf",
	)
}

// full takes no pod.
type full struct{ tiny }

func (*full) CreatePod(context.Context, *corev1.Pod) error { return errors.New("full") }

func TestMetricsTellOfReadyNodesAndPodsThatDoNotStart(t *testing.T) {
	web := pod("web", "vk")
	web.Spec.RestartPolicy = corev1.RestartPolicyAlways
	client := fake.NewSimpleClientset(web)
	mux := http.NewServeMux()
	start(t, client, making(&full{}), openTo(mux), func(cfg *nodeutil.NodeConfig) error {
		cfg.DisableLease = true
		return nil
	})
	eventually(t, "the node is ready, and the pod waits", func() bool {
		text := scrape(t, mux, "/metrics")
		return strings.Contains(text, "\nvk_nodes{ready=\"true\"} 1\n") && strings.Contains(text, "\nvk_pods{phase=\"Pending\"} 1\n") &&
			!strings.Contains(text, "\nvk_oldest_pending_pod_age_seconds 0\n") &&
			strings.Contains(text, "\nvk_provider_call_duration_seconds_count{code=\"unknown\",method=\"CreatePod\"} ")
	})
}

// Pods are counted when they start, and not when a virtual kubelet that was
// restarted finds them running, or when they fail without having started.
func TestPodsAreCountedWhenTheyStart(t *testing.T) {
	found := pod("found", "vk")
	found.Status.Phase = corev1.PodRunning
	client := fake.NewSimpleClientset(found)
	mux := http.NewServeMux()
	start(t, client, making(&tiny{}), openTo(mux))
	for i := range 3 {
		fresh := pod(fmt.Sprint("fresh-", i), "vk")
		fresh.CreationTimestamp = metav1.Now()
		if _, err := client.CoreV1().Pods(fresh.Namespace).Create(t.Context(), fresh, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three pods are counted", func() bool {
		return strings.Contains(scrape(t, mux, "/metrics"), "\nkubelet_started_pods_total 3\n")
	})
	wantLines(t, scrape(t, mux, "/metrics"),
		"kubelet_pod_start_duration_seconds_count 3",
		"kubelet_pod_start_total_duration_seconds_count 3",
		`kubelet_pod_start_total_duration_seconds_bucket{le="64"} 3`,
	)
}

// A pod that never started, and whose end was in a gap of the watch, waits no more:
// its successor's start is the word on both.
func TestAPodThatWasReplacedDoesNotWaitToStart(t *testing.T) {
	client := fake.NewSimpleClientset(pod("web", "vk"))
	mux, n := attachedTo(t, &tiny{}, nodeutil.WithClient(client))
	nodeutil.WatchPods(testContext(t), n)
	if text := scrape(t, mux, "/metrics"); strings.Contains(text, "\nvk_oldest_pending_pod_age_seconds 0\n") {
		t.Fatal("the pod does not count as one that waits")
	}
	successor := pod("web", "vk")
	successor.UID, successor.Status.Phase = "another", corev1.PodRunning
	if _, err := client.CoreV1().Pods("default").Update(t.Context(), successor, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the successor is known, and nothing waits", func() bool {
		text := scrape(t, mux, "/metrics")
		return strings.Contains(text, "\nvk_pods{phase=\"Running\"} 1\n") && strings.Contains(text, "\nvk_oldest_pending_pod_age_seconds 0\n")
	})
}

func TestRequestsAreCounted(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{})
	for _, request := range [][2]string{
		{"GET", "/pods"}, {"GET", "/pods/"}, {"POST", "/pods"}, {"GET", "/podsfoo"}, {"GET", "/secret/path"}, {"BREW", "/pods"},
		{"GET", "/metrics/probes"}, {"GET", "/metrics/foo"}, {"GET", "/healthz/ping"}, {"POST", "/exec/ns/p/c"}, {"GET", "/"},
	} {
		ask(mux, request[0], request[1])
	}
	text := scrape(t, mux, "/metrics")
	count := func(name, method, path, longRunning string, n int) string {
		return fmt.Sprintf(`%s{long_running="%s",method="%s",path="%s",server_type="readwrite"} %d`, name, longRunning, method, path, n)
	}
	const requests = "kubelet_http_requests_total"
	wantLines(t, text,
		count(requests, "GET", "pods", "false", 2),
		count(requests, "POST", "pods", "false", 1),
		count(requests, "other", "pods", "false", 1),
		count(requests, "GET", "other", "false", 4), // podsfoo, secret, metrics/foo and /
		count(requests, "GET", "metrics/probes", "false", 1),
		count(requests, "GET", "healthz", "false", 1),
		count(requests, "POST", "exec", "true", 1),
		count("kubelet_http_requests_duration_seconds_count", "GET", "pods", "false", 2),
		count("kubelet_http_inflight_requests", "GET", "pods", "false", 0),
		count("kubelet_http_inflight_requests", "GET", "metrics", "false", 1), // this one
	)
	if strings.Contains(text, "secret") {
		t.Error("a path of a client is in the metrics")
	}
}

func TestPanicsLeaveNoRequestInFlight(t *testing.T) {
	mux := http.NewServeMux()
	_, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(fake.NewSimpleClientset()), openTo(mux))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		mux.ServeHTTP(brokenWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/configz", nil))
	}()
	wantLines(t, scrape(t, mux, "/metrics"),
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="configz",server_type="readwrite"} 0`)
}

type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// One process may have several nodes, whose metrics are their own.
func TestNodesHaveTheirOwnMetrics(t *testing.T) {
	client := fake.NewSimpleClientset()
	for _, name := range []string{"a", "b"} {
		mux := http.NewServeMux()
		if _, err := nodeutil.NewNode(name, making(&tiny{}), nodeutil.WithClient(client), openTo(mux)); err != nil {
			t.Fatal(err)
		}
		text := scrape(t, mux, "/metrics")
		wantLines(t, text, `kubelet_node_name{node="`+name+`"} 1`)
		if strings.Count(text, "\nkubelet_node_name{") != 1 {
			t.Errorf("node %s serves the metrics of others:\n%s", name, own(text))
		}
	}
}

func TestOtherMetrics(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{})
	if text := scrape(t, mux, "/metrics/probes"); !strings.HasPrefix(text, "# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.") {
		t.Errorf("/metrics/probes: %s", text)
	}
	ask(mux, http.MethodGet, "/livez")
	if text := scrape(t, mux, "/metrics/slis"); !strings.Contains(text, `kubernetes_healthcheck{name="syncloop",type="livez"} 1`) {
		t.Errorf("/metrics/slis: %s", text)
	}
	scrape(t, mux, "/metrics/cadvisor")
}
