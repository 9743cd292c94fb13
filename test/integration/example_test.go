//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// buildExample builds examples/minimal as it is, but for the port, which others of this
// machine may have.
func buildExample(t *testing.T) (binary string) {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../../examples/minimal/main.go")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const option = "nodeutil.WithKubeletAPI()"
	if !strings.Contains(string(program), option) {
		t.Fatalf("examples/minimal does not use %s", option)
	}
	changed := strings.Replace(string(program), option, option+
		`, func(cfg *nodeutil.NodeConfig) error { cfg.HTTPListenAddr = ":0"; return nil }`, 1)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: filepath.Join(dir, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"main.go": []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "minimal")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./examples/minimal")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as make build, for what is compiled already
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// The example of the README is a whole node: the scheduler gives it pods, and kubectl
// shows their logs.
func TestExample(t *testing.T) {
	const name = "minimal"
	n := &virtualNode{name: name, log: &lockedbuffer.Buffer{}}
	cmd := exec.Command(buildExample(t))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig())
	since := time.Now()
	var err error
	if n.process, err = daemon.Launch(cmd, n.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop(t, os.Interrupt)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.log)
		}
		if err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n.waitReady(t, since)
	ns := newNamespace(t)
	pod := createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	eventually(t, "kubectl logs shows the log", func(ctx context.Context) (bool, string) {
		// The API server's certificate is known as soon as the cluster's client CA is.
		out, err := cluster.Kubectl(ctx, "-n", ns, "logs", "hello").CombinedOutput()
		return err == nil && string(out) == "hello from "+ns+"/hello\n", string(out)
	})
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForGone(t, pod)
}
