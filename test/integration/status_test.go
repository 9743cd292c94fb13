//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

var screenshot = flag.String("screenshot", "", "file to write the picture of the status page to, for docs/status.md")

// seen is what the browser of test/browser reports.
type seen struct {
	Text               string
	Width, ScrollWidth int
	Complaints         []string
}

func browse(t *testing.T, url string, args ...string) seen {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "browser"), append(args, url)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var report seen
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return report
}

// kubectlProxy serves the API with the administrator's credentials, and returns its URL.
func kubectlProxy(t *testing.T) string {
	t.Helper()
	var log lockedbuffer.Buffer
	process, err := daemon.Launch(cluster.Kubectl(context.Background(), "proxy", "--port", "0"), &log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Signal(os.Kill) })
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	eventually(t, "kubectl proxy serves", func(context.Context) (bool, string) {
		return address.MatchString(log.String()), log.String()
	})
	return "http://" + address.FindString(log.String())
}

func statusCommand(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"), append([]string{"status", "--kubeconfig", cluster.Kubeconfig()}, args...)...)
	text, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), command.ProcessState.ExitCode()
}

// People see in a browser and in a terminal why a pod does not run, and the page follows
// when it does: with scripts at once, without them after a while, and on a phone, too.
func TestStatusPage(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "well", podSpec(n), nil)
	waitForPhase(t, ns, "well", corev1.PodRunning)
	spec := podSpec(n)
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "later"}}}}
	createPod(t, ns, "waits", spec, nil)
	const problem = `secret "later" not found`
	url := kubectlProxy(t) + "/api/v1/nodes/" + n.name + "/proxy/status"

	args := []string{"-text", "live", "-text", ns + "/waits", "-text", problem, "-text", "1 Pending, 1 Running"}
	if *screenshot != "" {
		args = append(args, "-screenshot", *screenshot)
	}
	page := browse(t, url, args...)
	for _, want := range []string{n.name + " ready", ns + "/well", "CreatePod", "ProviderCreateSuccess", "Node " + n.name, "sync_pods_from_kubernetes"} {
		if !strings.Contains(page.Text, want) {
			t.Errorf("the page does not show %q, but\n%s", want, page.Text)
		}
	}
	if len(page.Complaints) > 0 {
		t.Errorf("the browser complains: %q", page.Complaints)
	}
	narrow := browse(t, url, "-width", "360", "-text", problem, "-no-scripts")
	if narrow.ScrollWidth > narrow.Width {
		t.Errorf("a window of %d pixels has to be scrolled to %d", narrow.Width, narrow.ScrollWidth)
	}
	if strings.Contains(narrow.Text, "live") {
		t.Error("scripts ran")
	}

	out, status := statusCommand(t, n.name)
	for _, want := range []string{n.name + ": ready", ns + "/waits", problem, "CreatePod"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("exit status %d, want %q in\n%s", status, want, out)
		}
	}
	if out, status := statusCommand(t); status != 0 || !regexp.MustCompile(n.name+` +ready .* 2, 1 running +1 pods with errors`).MatchString(out) {
		t.Errorf("of all nodes: exit status %d\n%s", status, out)
	}
	var parsed struct {
		Pods []struct{ Name, Error string }
	}
	out, _ = statusCommand(t, n.name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &parsed); err != nil || len(parsed.Pods) != 2 || !strings.Contains(fmt.Sprint(parsed.Pods), problem) {
		t.Errorf("as JSON: %v, %v", err, parsed.Pods)
	}
	if out, status := statusCommand(t, "none"); status != 1 || !strings.Contains(out, "cannot get the status of node none") {
		t.Errorf("of a node that there is not: exit status %d\n%s", status, out)
	}

	// The page in a browser is not loaded again, and yet shows what has become of the pod.
	var log lockedbuffer.Buffer
	watching, err := daemon.Launch(exec.Command(filepath.Join(bin, "browser"), "-text", problem, "-text", "Pods: 2 Running", url), &log)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the page shows the problem", func(context.Context) (bool, string) {
		return strings.Contains(log.String(), "seen: "+problem), log.String()
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "later"}, StringData: map[string]string{"A": "b"}}
	if _, err := client.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPhase(t, ns, "waits", corev1.PodRunning)
	<-watching.Done()
	if watching.Err() != nil {
		t.Errorf("the page that is watched: %v\n%s", watching.Err(), log.String())
	}
}
