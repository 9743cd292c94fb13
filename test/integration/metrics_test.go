//go:build integration

package integration

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

var updateMetrics = flag.Bool("update-metrics", false, "write what /metrics has to the list that dashboard and alerts are checked against")

// metricsList is what the module test/observability checks dashboard, alerts and
// docs/observability.md against.
const metricsList = "../observability/testdata/metrics.txt"

var (
	ourMetrics    = regexp.MustCompile(`^(kubelet|vk)_`)
	listedMetrics = regexp.MustCompile(`^(kubelet|vk|workqueue)_|^leader_election_master_status$|^process_(cpu_seconds_total|resident_memory_bytes|start_time_seconds|open_fds|max_fds)$|^rest_client_(requests_total|request_duration_seconds)$|^go_goroutines$`)
)

// What dashboard and alerts ask for is what a node has: the list against which
// they are checked is compared with a node that has had a pod, and has an
// identity of its own and a runtime of containers, and with a process whose nodes are in a file.
func TestMetricsAreThoseOfTheList(t *testing.T) {
	_, bootstrap := bootstrapToken(t)
	args := append([]string{"--metrics-addr", "127.0.0.1:0"}, processes(t)...)
	n, ns := startItself(t, bootstrap, t.TempDir(), args...), newNamespace(t)
	spec := podSpec(n)
	spec.Containers[0].Command = []string{"sleep", "1000"}
	pod := createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForGone(t, pod)
	served := metricsOf(t, n.log)
	pools := startPools(t, "pools: []", "--metrics-addr", "127.0.0.1:0")
	for name, line := range metricsOf(t, pools.log) {
		if strings.HasPrefix(name, "vk_config_") { // which only such a process has
			served[name] = line
		}
	}
	configuration := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(configuration, []byte("apiVersion: virtual-kubelet.io/v1alpha1\nkind: VirtualKubeletConfiguration\nlogging: {level: debug}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, shared := range []*sharers{
		newSharersOf(t, "metrics-leader", 0, "--leader-elect", "--metrics-addr", "127.0.0.1:0", "--config", configuration),
		newSharersOf(t, "metrics-shards", 1, "--nodes", "1", "--shards", "1", "--metrics-addr", "127.0.0.1:0"),
	} {
		for name, line := range metricsOf(t, shared.start().log) {
			if strings.HasPrefix(name, "leader_election_") || strings.HasPrefix(name, "vk_shards") || strings.HasPrefix(name, "vk_configuration_") {
				served[name] = line
			}
		}
	}
	if *updateMetrics {
		lines := slices.Sorted(maps.Values(served))
		if err := os.WriteFile(metricsList, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile(metricsList)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		listed[line] = true
		name, _, _ := strings.Cut(line, " ")
		if served[name] != line {
			t.Errorf("the list has %q, the node %q: see -update-metrics", line, served[name])
		}
	}
	for name, line := range served {
		if ourMetrics.MatchString(name) && !listed[line] {
			t.Errorf("the list lacks %q: see -update-metrics", line)
		}
	}
}

// processes are the flags of a node whose pods are processes.
func processes(t *testing.T) []string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "process.json")
	content := fmt.Sprintf(`{"root": %q, "runtime": {"isolation": "none", "sharedNetwork": true}, "endPodsOnExit": true}`, t.TempDir())
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--provider", "process", "--provider-config", config}
}

// metricsAddress is where a process serves its metrics, as its log says.
func metricsAddress(t *testing.T, log *lockedbuffer.Buffer) string {
	t.Helper()
	address := servingMetrics.FindStringSubmatch(log.String())
	if address == nil {
		t.Fatal("the log does not say where metrics are served")
	}
	return address[1]
}

var servingMetrics = regexp.MustCompile(`msg="Serving metrics".* address=(\S+)`)

// metricsOf returns for each metric of a process a line with its name, type and
// labels. The log says where they are.
func metricsOf(t *testing.T, log *lockedbuffer.Buffer) map[string]string {
	t.Helper()
	eventually(t, "metrics are served", func(context.Context) (bool, string) {
		return servingMetrics.MatchString(log.String()), log.String()
	})
	url := "http://" + metricsAddress(t, log) + "/metrics"
	var families map[string]*dto.MetricFamily
	eventually(t, "there are nodes, and requests of the kubelet API were counted", func(ctx context.Context) (bool, string) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		parser := expfmt.NewTextParser(model.LegacyValidation)
		if families, err = parser.TextToMetricFamilies(response.Body); err != nil {
			t.Fatal(err)
		}
		return families["vk_nodes"] != nil && families["kubelet_http_requests_duration_seconds"] != nil, "there are none"
	})
	lines := map[string]string{}
	for name, family := range families {
		if !listedMetrics.MatchString(name) {
			continue
		}
		labels := map[string]bool{}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = true
			}
		}
		kind := strings.ToLower(family.GetType().String())
		lines[name] = strings.TrimSpace(fmt.Sprintf("%s %s %s", name, kind, strings.Join(slices.Sorted(maps.Keys(labels)), " ")))
	}
	return lines
}
