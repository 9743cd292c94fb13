//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// fleetSize is how many nodes one process has in these tests.
const fleetSize = 100

// startFleet starts a process with many nodes, with a service account that has
// the rights that "virtual-kubelet config print-rbac" prints for any node, and
// waits until all are Ready. It returns the name before their numbers, and the log.
func startFleet(t *testing.T, args ...string) (name string, log *lockedbuffer.Buffer) {
	t.Helper()
	dir := t.TempDir()
	name = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	user, kubeconfig := newAccountFor(t, dir, name, "")
	n := &virtualNode{name: name, log: &lockedbuffer.Buffer{}}
	n.launch(t, append([]string{"--kubeconfig", kubeconfig,
		"--provider", "mock", "--nodename", name, "--nodes", fmt.Sprint(fleetSize), "--port", "0"}, args...))
	t.Cleanup(func() {
		n.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log:\n%s", n.log.String())
		} else if ready := readyNodes(t, context.Background(), name, corev1.ConditionTrue); ready != fleetSize {
			t.Errorf("after the end %d of %d nodes are as they were", ready, fleetSize)
		}
		assertNothingForbidden(t, user)
		for i := range fleetSize {
			if err := client.CoreV1().Nodes().Delete(context.Background(), fmt.Sprint(name, "-", i), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	eventually(t, "all nodes are Ready", func(ctx context.Context) (bool, string) {
		ready := readyNodes(t, ctx, name, corev1.ConditionTrue)
		return ready == fleetSize, fmt.Sprintf("%d of %d", ready, fleetSize)
	})
	return name, n.log
}

// readyNodes counts the nodes of a fleet whose Ready condition is this.
func readyNodes(t *testing.T, ctx context.Context, name string, status corev1.ConditionStatus) (count int) {
	t.Helper()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if strings.HasPrefix(node.Name, name+"-") && c.Type == corev1.NodeReady && c.Status == status {
				count++
			}
		}
	}
	return count
}

// onNode is the spec of a pod that is bound to a node of a fleet.
func onNode(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "nginx"}}}
}

// A fleet's pods run and go, and kubectl logs and exec reach them through the API
// server, with one port for all nodes.
func TestFleetOnOnePort(t *testing.T) {
	name, _ := startFleet(t)
	ports := fleetPorts(t, name)
	if len(ports) != 1 {
		t.Errorf("the nodes tell %d ports, want one", len(ports))
	}
	podsRunAndGo(t, name)
	out, err := cluster.Kubectl(t.Context(), "get", "--raw", "/api/v1/nodes/"+name+"-0/proxy/pods").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "421") {
		t.Errorf("a request that identifies no node: got %v and %q, want status 421", err, out)
	}
	if out := kubectl(t, "get", "--raw", "/api/v1/nodes/"+name+"-0/proxy/metrics"); !strings.Contains(out, fmt.Sprintf("vk_nodes{ready=\"true\"} %d\n", fleetSize)) {
		t.Error("the metrics do not tell of all nodes")
	}
	// All nodes report the same port: what is there is one process, and scraped once.
	prometheus := startScraper(t, "scrape.yaml")
	prometheus.waitFor(t, `sum(vk_nodes{job="virtual-kubelet"})`, fmt.Sprint(fleetSize))
	prometheus.waitFor(t, `count(up{job="virtual-kubelet"})`, "1")
}

// With a port for each node, the whole kubelet API of each is reached.
func TestFleetOnAPortForEachNode(t *testing.T) {
	name, log := startFleet(t, "--port-per-node", "--metrics-addr", ":0")
	_, port, err := net.SplitHostPort(metricsAddress(t, log))
	if err != nil {
		t.Fatal(err)
	}
	if ports := fleetPorts(t, name); len(ports) != fleetSize {
		t.Errorf("the nodes tell %d ports, want %d", len(ports), fleetSize)
	}
	podsRunAndGo(t, name)
	ns := newNamespace(t)
	createPod(t, ns, "steady", onNode(name+"-7"), nil)
	waitForPhase(t, ns, "steady", corev1.PodRunning)
	for node, want := range map[string]bool{name + "-7": true, name + "-8": false} {
		if out := kubectl(t, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/pods"); strings.Contains(out, ns) != want {
			t.Errorf("node %s answers %q", node, out)
		}
	}
	// Each port answers for the process, which is scraped once nevertheless.
	if out := kubectl(t, "get", "--raw", "/api/v1/nodes/"+name+"-8/proxy/metrics"); !strings.Contains(out, fmt.Sprintf("vk_nodes{ready=\"true\"} %d\n", fleetSize)) {
		t.Error("the metrics at a node's port do not tell of all nodes")
	}
	prometheus := startScraper(t, "scrape-port-per-node.yaml", ":9100", ":"+port)
	prometheus.waitFor(t, `sum(vk_nodes{job="virtual-kubelet"})`, fmt.Sprint(fleetSize))
	prometheus.waitFor(t, `count(up{job="virtual-kubelet"})`, "1")
}

// podsRunAndGo runs a pod on each tenth node.
func podsRunAndGo(t *testing.T, name string) {
	t.Helper()
	ns := newNamespace(t)
	var pods []string
	for i := 0; i < fleetSize; i += 10 {
		pod := fmt.Sprint("web-", i)
		createPod(t, ns, pod, onNode(fmt.Sprint(name, "-", i)), nil)
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		waitForPhase(t, ns, pod, corev1.PodRunning)
	}
	for _, pod := range pods[:3] {
		if out := kubectl(t, "-n", ns, "logs", pod); !strings.Contains(out, pod) {
			t.Errorf("the log of %s is %q", pod, out)
		}
		if out := kubectl(t, "-n", ns, "exec", pod, "--", "echo", "a", "b"); out != "a b\n" {
			t.Errorf("exec in %s printed %q", pod, out)
		}
	}
	kubectl(t, "-n", ns, "delete", "pods", "--all", "--timeout=60s")
}

// fleetPorts are the ports of the kubelet API that the nodes report.
func fleetPorts(t *testing.T, name string) map[int32]bool {
	t.Helper()
	ports := map[int32]bool{}
	for i := range fleetSize {
		node, err := client.CoreV1().Nodes().Get(t.Context(), fmt.Sprint(name, "-", i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ports[node.Status.DaemonEndpoints.KubeletEndpoint.Port] = true
	}
	return ports
}
