//go:build integration

package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deregisterNode runs the command for a node as an administrator.
func deregisterNode(t *testing.T, n *virtualNode, args ...string) (out string, status int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "virtual-kubelet"),
		append([]string{"deregister", "--kubeconfig", cluster.Kubeconfig(), "--nodename", n.name, "--provider", "mock"}, args...)...)
	content, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(content), command.ProcessState.ExitCode()
}

// Nothing is removed while the node runs, or has pods; then nothing of it stays, and what
// is of others does.
func TestDeregister(t *testing.T) {
	t.Parallel() // it waits most of the time
	_, bootstrap := bootstrapToken(t)
	n, ns := startItself(t, bootstrap, t.TempDir(), "--serving-certificate", "cluster"), newNamespace(t)
	other, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name + "-other"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), other.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	pod := createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	eventually(t, "the node requests a serving certificate", func(context.Context) (bool, string) {
		return len(requestedBy(t, n.user, certificatesv1.KubeletServingSignerName)) > 0, ""
	})
	expect := func(status int, texts []string, args ...string) {
		t.Helper()
		out, got := deregisterNode(t, n, args...)
		if got != status {
			t.Errorf("deregister %v: exit status %d, want %d\n%s", args, got, status, out)
		}
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("deregister %v: no %q in\n%s", args, text, out)
			}
		}
	}
	const nothing = "nothing was removed"
	expect(1, []string{"a process renews it", "1 pods are bound", ns + "/hello", "would remove Node " + n.name, nothing}, "--yes")
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForGone(t, pod)
	n.stop(t, syscall.SIGTERM)
	expect(1, []string{"no process has it any more", nothing}, "--yes")
	eventually(t, "the lease has run out", func(context.Context) (bool, string) {
		out, _ := deregisterNode(t, n)
		return !strings.Contains(out, "warning:"), out
	})
	expect(1, []string{"would remove Node " + n.name, "would remove Lease kube-node-lease/" + n.name, "would remove CertificateSigningRequest", nothing, "--yes"})
	expect(2, []string{"--service-account"}, "--service-account", "x")
	expect(0, []string{"removed Node " + n.name, "--service-account " + ns + "/vk --roles-only | kubectl delete"}, "--yes", "--service-account", ns+"/vk")
	expect(0, []string{"there is nothing of node"}, "--yes")
	if _, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node: %v", err)
	}
	if _, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), n.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the lease: %v", err)
	}
	if left := requestedBy(t, n.user, certificatesv1.KubeletServingSignerName); len(left) > 0 {
		t.Errorf("%d requests are left", len(left))
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), other.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the other Node: %v", err)
	}
	name := n.name
	n.name = other.Name
	expect(1, []string{"no virtual kubelet made", "left alone"}, "--yes", "--force")
	n.name = name
	n.start(t) // as if it were new
}
