//go:build integration

package kubectl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestTop has the real metrics-server read the node. What kubectl top says is
// what the provider says.
func TestTop(t *testing.T) {
	n, u := startNode(t), user{namespace: newNamespace(t)}
	runPod(t, u.namespace, "one", n.podSpec(corev1.Container{Name: "a", Image: "test"}, corev1.Container{Name: "b", Image: "test"}), nil)
	runPod(t, u.namespace, "two", n.podSpec(corev1.Container{Name: "a", Image: "test"}), nil)
	ended := startMetricsServer(t)

	eventually(t, "there are figures of the node and the pods", func() (bool, string) {
		select {
		case <-ended:
			t.Fatal("metrics-server has ended")
		default:
		}
		node, nodeErr, nodeCode := u.result(t, nil, "top", "node", n.name, "--no-headers")
		pods, podsErr, podsCode := u.result(t, nil, "top", "pod", "--no-headers")
		return nodeCode == 0 && podsCode == 0 && strings.Count(pods, "\n") == 2 && !strings.Contains(node, "unknown"), node + nodeErr + pods + podsErr
	})
	summary, err := n.provider.GetStatsSummary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkFigures(t, u.run(t, "top", "node", n.name), n.name, summary.Node.CPU, summary.Node.Memory)
	pods, containers := u.run(t, "top", "pod"), u.run(t, "top", "pod", "--containers")
	for _, pod := range summary.Pods {
		checkFigures(t, pods, pod.PodRef.Name, pod.CPU, pod.Memory)
		for _, c := range pod.Containers {
			checkFigures(t, containers, pod.PodRef.Name+" +"+c.Name, c.CPU, c.Memory)
		}
	}
}

// checkFigures looks for a line in kubectl's table. metrics-server takes the CPU
// from two readings of the time used, and each sum is rounded up: some milli
// cores may be more.
func checkFigures(t *testing.T, table, name string, cpu *stats.CPUStats, memory *stats.MemoryStats) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` +(\d+)m .*?(\d+)Mi`).FindStringSubmatch(table)
	if found == nil {
		t.Errorf("there is no line for %s in\n%s", name, table)
		return
	}
	for i, want := range []float64{float64(*cpu.UsageNanoCores) / 1e6, float64(*memory.WorkingSetBytes) / (1 << 20)} {
		got, err := strconv.ParseFloat(found[i+1], 64)
		if err != nil || got < want-3 || got > want+3 {
			t.Errorf("kubectl top says %q, want about %.0fm and %dMi", found[0], float64(*cpu.UsageNanoCores)/1e6, *memory.WorkingSetBytes>>20)
			return
		}
	}
}

// startMetricsServer starts metrics-server with the rights of its manifests,
// and registers it with the aggregation layer. It returns a channel that is
// closed when the process has ended, which it should not before the test does.
func startMetricsServer(t *testing.T) (ended <-chan struct{}) {
	t.Helper()
	dir, port := t.TempDir(), refusingPort(t)
	admin := user{namespace: "kube-system"}
	admin.run(t, "apply", "-f", "../metricsserver/rbac.yaml")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	writeKubeconfig(t, kubeconfig, strings.TrimSpace(admin.run(t, "create", "token", "metrics-server")))

	log := &lockedBuffer{}
	server := exec.CommandContext(t.Context(), filepath.Join(bin, "metrics-server"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir,
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", "--kubelet-use-node-status-port",
		"--kubelet-insecure-tls", "--metric-resolution=10s", "--kubelet-request-timeout=5s") // the least, and less
	server.Stdout, server.Stderr = log, log
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatalf("%v: run \"make metrics-server\"", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Wait() // it is told to end
	}()
	t.Cleanup(func() {
		<-done
		if t.Failed() {
			t.Logf("log of metrics-server:\n%s", log)
		}
		// Discovery would go on to ask for it.
		if out, err := cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "apiservice", "v1beta1.metrics.k8s.io").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})

	manifest := filepath.Join(dir, "apiservice.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, apiService, port), 0o600); err != nil {
		t.Fatal(err)
	}
	admin.run(t, "apply", "-f", manifest)
	return done
}

// writeKubeconfig writes a kubeconfig for the holder of a token.
func writeKubeconfig(t *testing.T, path, token string) {
	t.Helper()
	config := cluster.Config()
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
}

// apiService leads the API server to this machine, where it looks for a Service.
const apiService = `
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: metrics-server, namespace: kube-system, port: %s}
  group: metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`
