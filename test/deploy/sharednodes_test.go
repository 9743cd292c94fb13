//go:build containers

package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	sharersNamespace = "virtual-kubelet"
	sharedNodes      = 300 // of deployment.yaml
)

// testSharedNodes installs deployment.yaml: three processes that share nodes of the
// mock provider. One of them is deleted, and another takes its place.
func (w *world) testSharedNodes(t *testing.T) {
	w.runAsUser(t, block(t, "Many nodes", 0))
	w.awaitEvenShares(t)
	stillReady := w.watchNodes(t, "vk-")
	w.runOn(t, "first", "vk-7")

	gone := w.sharers(t)[0]
	w.kubectl(t, "-n", sharersNamespace, "delete", "pod", gone.Name)
	for i, node := range w.awaitEvenShares(t) {
		w.runOn(t, fmt.Sprint("next-", i), node)
	}
	stillReady()
}

// sharers are the pods of the Deployment that are there to stay.
func (w *world) sharers(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := w.client.CoreV1().Pods(sharersNamespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// awaitEvenShares waits until each pod of the Deployment has a third of the nodes,
// all of which are Ready, and returns one node of each.
func (w *world) awaitEvenShares(t *testing.T) []string {
	t.Helper()
	var some map[string]string
	eventually(t, "all nodes are Ready and shared evenly", func() (bool, string) {
		want := map[string]int{}
		for _, pod := range w.sharers(t) {
			want[pod.Status.PodIP] = sharedNodes / 3
		}
		nodes, err := w.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		must(t, err)
		got := map[string]int{}
		some = map[string]string{}
		for _, node := range nodes.Items {
			if strings.HasPrefix(node.Name, "vk-") && ready(&node) == corev1.ConditionTrue {
				address := node.Status.Addresses[0].Address
				got[address]++
				some[address] = node.Name
			}
		}
		return len(want) == 3 && maps.Equal(got, want), fmt.Sprintf("nodes by address: %v, want %v", got, want)
	})
	return slices.Collect(maps.Values(some))
}

// runOn runs a pod on a node of the mock provider, and asks it something.
func (w *world) runOn(t *testing.T, pod, node string) {
	t.Helper()
	w.kubectl(t, "run", pod, "--image=nginx", "--overrides", onNode(node))
	w.kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout="+patience.String())
	if out := w.kubectl(t, "logs", pod); !strings.Contains(out, pod) {
		t.Errorf("the log of %s is %q", pod, out)
	}
	if out := w.kubectl(t, "exec", pod, "--", "echo", "a", "b"); out != "a b\n" {
		t.Errorf("exec in %s printed %q", pod, out)
	}
}

// onNode has the scheduler put a pod on a virtual node, as deploy/README.md says.
func onNode(node string) string {
	return `{"spec": {"nodeSelector": {"kubernetes.io/hostname": "` + node + `"}, "tolerations": [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}]}}`
}
