//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// A process that has nothing but a configuration file runs the node that it describes, and its
// log level changes with the file.
func TestConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "configuration.yaml")
	n := &virtualNode{name: "configured", log: &lockedbuffer.Buffer{}}
	write := func(level string) {
		t.Helper()
		content := fmt.Sprintf(`apiVersion: virtual-kubelet.io/v1alpha1
kind: VirtualKubeletConfiguration
provider: mock
providerConfig:
  configured: {cpu: "7"}
node:
  name: configured
  os: windows
  taint: {key: example.com/taint, value: a, effect: NoExecute}
clientConnection: {kubeconfig: %s}
kubeletAPI: {port: 0}
logging: {level: %s, format: json}
`, filepath.Base(n.kubeconfig), level)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.user, n.kubeconfig = newAccount(t, dir, n.name)
	if filepath.Dir(n.kubeconfig) != dir {
		t.Fatalf("the kubeconfig is %s, want it beside %s", n.kubeconfig, file)
	}
	write("info")
	since := time.Now()
	n.launch(t, []string{"--config", file})
	t.Cleanup(func() {
		n.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log:\n%s", n.log)
		}
		assertNothingForbidden(t, n.user)
		if err := client.CoreV1().Nodes().Delete(context.Background(), n.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n.waitReady(t, since)
	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if taints := fmt.Sprint(node.Spec.Taints); node.Status.Capacity.Cpu().String() != "7" || node.Status.NodeInfo.OperatingSystem != "windows" ||
		!strings.Contains(taints, "example.com/taint") || !strings.Contains(taints, "NoExecute") {
		t.Errorf("the Node has %s CPUs, the system %s and the taints %s", node.Status.Capacity.Cpu(), node.Status.NodeInfo.OperatingSystem, taints)
	}
	write("debug")
	eventually(t, "the log level changes", func(context.Context) (bool, string) {
		return strings.Contains(n.log.String(), `"msg":"The configuration has changed, and is in use","fields":"logging.level"`), n.log.String()
	})
}

// The file of --provider-config is watched without a --config, too: what is wrong with it is in the
// log and in a metric, and the node goes on.
func TestFileOfTheProvider(t *testing.T) {
	n := startNode(t)
	before, err := os.ReadFile(n.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ content, log, metric string }{
		{"{}", `msg="The configuration has changed: restart to use it" fields=--provider-config`, "vk_configuration_in_use 0"},
		{`{"` + n.name + `": {"cpus": "1"}}`, `msg="The configuration cannot be used; the values in force stay"`, "vk_configuration_in_use 0"},
		{string(before), `msg="The configuration is again as this process uses it"`, "vk_configuration_in_use 1"},
	} {
		if err := os.WriteFile(n.config, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, step.log, func(context.Context) (bool, string) {
			return strings.Contains(n.log.String(), step.log), n.log.String()
		})
		if metrics := kubectl(t, "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/metrics"); !strings.Contains(metrics, step.metric+"\n") {
			t.Errorf("after %q the node's metrics lack %q", step.log, step.metric)
		}
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpu := node.Status.Capacity.Cpu().String(); cpu != "100" {
		t.Errorf("the Node has %s CPUs, want those of the start", cpu)
	}
}
