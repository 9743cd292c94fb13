//go:build integration

package integration

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
)

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestKubectl(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	eventually(t, "the pod has its event", func(context.Context) (bool, string) { // which comes by itself
		events := kubectl(t, "-n", ns, "get", "events")
		return strings.Contains(events, "ProviderCreateSuccess"), events
	})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "node", n.name}, " Ready "},
		{[]string{"-n", ns, "get", "pod", "hello"}, "1/1     Running"},
		{[]string{"-n", ns, "logs", "hello"}, "hello"},
		{[]string{"-n", ns, "exec", "hello", "--", "echo", "a", "b"}, "a b\n"},
		{[]string{"-n", ns, "describe", "pod", "hello"}, "ProviderCreateSuccess"},
		{[]string{"get", "--raw", "/api/v1/nodes/" + n.name + "/proxy/healthz"}, "ok"},
		{[]string{"get", "--raw", "/api/v1/nodes/" + n.name + "/proxy/pods"}, `"name":"hello"`},
		{[]string{"-n", ns, "delete", "pod", "hello"}, "deleted"},
	} {
		if out := kubectl(t, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("kubectl %v printed %q, want it to contain %q", c.args, out, c.want)
		}
	}
}

func TestExitCodeOfExec(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	err := cluster.Kubectl(t.Context(), "-n", ns, "exec", "hello", "--", "sh", "-c", "exit 3").Run()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.ExitCode() != 3 {
		t.Errorf("kubectl exec ended with %v, want exit code 3", err)
	}
}

// The kubelet API is for those whom the API server knows and allows.
func TestStrangersAreRefused(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	port := kubectl(t, "get", "node", n.name, "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
	address := kubectl(t, "get", "node", n.name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	url := "https://" + address + ":" + port + "/pods"
	if status := get(t, url, ""); status != 401 {
		t.Errorf("without credentials: %d, want 401", status)
	}
	if status := get(t, url, "nonsense"); status != 401 {
		t.Errorf("with a bad token: %d, want 401", status)
	}
	token := strings.TrimSpace(kubectl(t, "-n", ns, "create", "token", "default"))
	if status := get(t, url, token); status != 403 {
		t.Errorf("with the token of a service account without rights: %d, want 403", status)
	}
}

func TestEndToEndSuite(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
		Kubeconfig:   cluster.Kubeconfig(),
		Namespace:    ns,
		NodeName:     n.name,
		WatchTimeout: patience,
	}).Run(t)
}

func TestPortForward(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	out := &lockedbuffer.Buffer{}
	forward := cluster.Kubectl(t.Context(), "-n", ns, "port-forward", "pod/hello", ":80")
	forward.Stdout, forward.Stderr = out, out
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = forward.Process.Kill()
		_ = forward.Wait()
	}()
	var port string
	eventually(t, "kubectl says which port it forwards", func(context.Context) (bool, string) {
		found := regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`).FindStringSubmatch(out.String())
		if found == nil {
			return false, out.String()
		}
		port = found[1]
		return true, ""
	})
	for range 3 { // a connection each
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(body), "hello") {
			t.Errorf("through the port: %q, %v; want a page that names the pod", body, err)
		}
	}
}

func TestExecWithInput(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	cat := cluster.Kubectl(t.Context(), "-n", ns, "exec", "-i", "hello", "--", "cat")
	cat.Stdin = strings.NewReader("one\ntwo\r\n")
	if out, err := cat.Output(); err != nil || string(out) != "one\ntwo\r\n" {
		t.Errorf("cat printed %q, %v", out, err)
	}
}
