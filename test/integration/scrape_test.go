//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// scraper is a Prometheus with the configuration of deploy/prometheus.
type scraper struct{ url string }

// startScraper starts Prometheus (Debian's package prometheus), which is the
// administrator to the nodes, with a file of deploy/prometheus, in which something
// may be replaced. That package cannot ask a cluster for nodes: it gets them in
// a file, as it would find them.
func startScraper(t *testing.T, configuration string, replace ...string) scraper {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/" + configuration)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.NewReplacer(replace...).Replace(string(text)))
	var config map[string]any
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config["global"] = map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s"}
	for _, job := range config["scrape_configs"].([]any) {
		job := job.(map[string]any)
		delete(job, "kubernetes_sd_configs")
		delete(job, "authorization")
		job["file_sd_configs"] = []any{map[string]any{"files": []string{discoveredNodes(t, dir)}}}
		job["tls_config"] = map[string]any{"insecure_skip_verify": true, "cert_file": pki("admin.crt"), "key_file": pki("admin.key")}
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if text, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var log lockedbuffer.Buffer
	process, err := daemon.Launch(exec.Command("prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:0"), &log)
	if err != nil {
		t.Fatalf("cannot start Prometheus (make integration installs it): %v", err)
	}
	t.Cleanup(func() {
		if err := process.Stop(syscall.SIGTERM); err != nil || t.Failed() {
			t.Logf("Prometheus ended with %v:\n%s", err, log.String())
		}
	})
	var address string
	eventually(t, "Prometheus says where it listens", func(context.Context) (bool, string) {
		text := log.String()
		found := prometheusListens.FindStringSubmatch(text)
		if found != nil {
			address = found[1]
		}
		return found != nil, text
	})
	return scraper{"http://" + address}
}

var prometheusListens = regexp.MustCompile(`msg="Listening on".* address=(\S+)`)

// discoveredNodes writes the nodes of the cluster as Prometheus' discovery of nodes
// has them: each with its address and port, its name as the instance, and its labels.
func discoveredNodes(t *testing.T, dir string) (file string) {
	t.Helper()
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var groups []group
	for _, node := range nodes.Items {
		g := group{Labels: map[string]string{"instance": node.Name, "__meta_kubernetes_node_name": node.Name}}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				port := fmt.Sprint(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
				g.Targets = []string{net.JoinHostPort(address.Address, port)}
			}
		}
		for key, value := range node.Labels {
			g.Labels["__meta_kubernetes_node_label_"+strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(key)] = value
		}
		groups = append(groups, g)
	}
	content, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "nodes.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// waitFor waits until an expression has one value, and it is this.
func (s scraper) waitFor(t *testing.T, expression, want string) {
	t.Helper()
	eventually(t, expression+" is "+want, func(ctx context.Context) (bool, string) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/query?query="+url.QueryEscape(expression), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		var answer struct {
			Data struct {
				Result []struct {
					Value [2]any `json:"value"`
				} `json:"result"`
			} `json:"data"`
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return false, err.Error()
		}
		found := answer.Data.Result
		return len(found) == 1 && found[0].Value[1] == want, fmt.Sprint(found)
	})
}
