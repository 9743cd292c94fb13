//go:build integration

package kubectl

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/metricsservertest"
)

// TestTop has the real metrics-server read the node. What kubectl top says is
// what the provider says.
func TestTop(t *testing.T) {
	n, u := startNode(t), user{namespace: newNamespace(t)}
	runPod(t, u.namespace, "one", n.podSpec(corev1.Container{Name: "a", Image: "test"}, corev1.Container{Name: "b", Image: "test"}), nil)
	runPod(t, u.namespace, "two", n.podSpec(corev1.Container{Name: "a", Image: "test"}), nil)
	ended := metricsservertest.Start(t, cluster, "../..")

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
