//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A pod leaves when the provider is done: not before, and long before the end
// of a grace period that exceeds the test's patience.
func TestGracefulDeleteEndsWithTheProvider(t *testing.T) {
	t.Parallel() // it waits most of the time
	n, ns := startNode(t), newNamespace(t)
	spec := podSpec(n)
	spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	createPod(t, ns, "slow", spec, map[string]string{"mock.virtual-kubelet.io/stop-delay": "20s"})
	pod := waitForPhase(t, ns, "slow", corev1.PodRunning)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "slow", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	going, err := client.CoreV1().Pods(ns).Get(t.Context(), "slow", metav1.GetOptions{})
	if err != nil || going.DeletionTimestamp == nil {
		t.Fatalf("the pod left before its provider was done: %v", err)
	}
	waitForGone(t, pod)
	if last := lastOf(n.journalOf(t, ns), string(pod.UID)); last == "create" {
		t.Errorf("the provider was still running the pod when it left the API")
	}
}

func TestForceDeleteStopsThePod(t *testing.T) {
	t.Parallel() // it waits most of the time
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "forced", podSpec(n), map[string]string{"mock.virtual-kubelet.io/stop-delay": "10m"})
	pod := waitForPhase(t, ns, "forced", corev1.PodRunning)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "forced", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(ns).Get(t.Context(), "forced", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a force deleted pod is still there: %v", err)
	}
	eventually(t, "the provider has killed the pod", func(context.Context) (bool, string) {
		last := lastOf(n.journalOf(t, ns), string(pod.UID))
		return last == "forget", last
	})
}

func TestRecreateUnderTheSameName(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	createPod(t, ns, "same", podSpec(n), nil)
	first := waitForPhase(t, ns, "same", corev1.PodRunning)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "same", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	createPod(t, ns, "same", podSpec(n), nil)
	second := waitForPhase(t, ns, "same", corev1.PodRunning)
	if first.UID == second.UID {
		t.Fatal("the pod was not replaced")
	}
	var order []string
	for _, e := range n.journalOf(t, ns) {
		switch {
		case e.Op == "forget" && e.UID == string(first.UID):
			order = append(order, "old gone")
		case e.Op == "create" && e.UID == string(second.UID):
			order = append(order, "new created")
		}
	}
	if want := []string{"old gone", "new created"}; !slices.Equal(order, want) {
		t.Errorf("in the provider: %v, want %v", order, want)
	}
}

func TestDeletedNodeIsRegisteredAgain(t *testing.T) {
	n := startNode(t)
	before, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is there again, and Ready", func(ctx context.Context) (bool, string) {
		node, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		return node.UID != before.UID && ready, fmt.Sprintf("%+v", node.Status.Conditions)
	})
}

func TestRestartIsNotNoticed(t *testing.T) {
	n := startNode(t)
	n.stop(t, syscall.SIGTERM)
	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			t.Errorf("after the end the Ready condition is %s, %s", c.Status, c.Reason)
		}
	}
	n.start(t)
	ns := newNamespace(t)
	createPod(t, ns, "after", podSpec(n), nil)
	waitForPhase(t, ns, "after", corev1.PodRunning)
}

func TestStoppedNodeSaysSo(t *testing.T) {
	n := startNode(t, "--not-ready-at-shutdown")
	n.stop(t, syscall.SIGTERM)
	node, err := client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionFalse || c.Reason != "KubeletStopped") {
			t.Errorf("after the end the Ready condition is %s, %s", c.Status, c.Reason)
		}
	}
	n.start(t) // for the clean-up, and to see that it comes back
}

// lastOf is the last thing that the provider did about a pod.
func lastOf(entries []entry, uid string) string {
	last := ""
	for _, e := range entries {
		if e.UID == uid {
			last = e.Op
		}
	}
	return last
}
