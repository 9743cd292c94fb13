//go:build integration

package integration

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAPIServerRestarts(t *testing.T) {
	if !withOwnControlPlane(t) {
		return
	}
	n, ns := startNode(t), newNamespace(t)
	before := createRunning(t, n, ns, "before", 10)
	if err := cluster.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := createRunning(t, n, ns, "after", 10)
	now := running(t, ns)
	for name, uid := range before {
		if now[name] != uid {
			t.Errorf("pod %s is not the one that ran before", name)
		}
	}
	creates := createsByUID(n.journalOf(t, ns))
	if len(creates) != len(before)+len(after) {
		t.Errorf("%d pods were created in the provider, want %d", len(creates), len(before)+len(after))
	}
	for uid, times := range creates {
		if times != 1 {
			t.Errorf("pod %s was created %d times", uid, times)
		}
	}
}

// A killed agent loses no pod and creates none twice; what was deleted while it
// was down, in any way, ends.
func TestKilledAndRestartedWith50Pods(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	before := createRunning(t, n, ns, "pod", 50)
	n.stop(t, syscall.SIGKILL)

	pods := client.CoreV1().Pods(ns)
	for i := range 5 {
		if err := pods.Delete(t.Context(), fmt.Sprintf("pod-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), fmt.Sprintf("pod-%d", 5+i), *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
	}
	createPod(t, ns, "pod-5", podSpec(n), nil) // under the name of one that was force deleted

	n.start(t)
	waitForPhase(t, ns, "pod-5", corev1.PodRunning)
	eventually(t, "the provider holds just what the API has", func(ctx context.Context) (bool, string) {
		wanted := running(t, ns)
		held := map[string]bool{}
		for _, e := range n.journalOf(t, ns) {
			switch e.Op {
			case "create":
				held[e.UID] = true
			case "forget":
				delete(held, e.UID)
			}
		}
		for _, uid := range wanted {
			if !held[string(uid)] {
				return false, "the provider has lost " + string(uid)
			}
		}
		return len(wanted) == 41 && len(held) == 41, fmt.Sprintf("%d pods run, the provider holds %d, want 41", len(wanted), len(held))
	})
	now := running(t, ns)
	for i := 10; i < 50; i++ {
		name := fmt.Sprintf("pod-%d", i)
		if now[name] != before[name] {
			t.Errorf("pod %s is not the one that ran before", name)
		}
	}
	creates := createsByUID(n.journalOf(t, ns))
	if len(creates) != 51 {
		t.Errorf("%d pods were created in the provider, want 51", len(creates))
	}
	for uid, times := range creates {
		if times != 1 {
			t.Errorf("pod %s was created %d times", uid, times)
		}
	}
}

// createRunning creates pods PREFIX-0 to PREFIX-(count-1), and returns their
// UIDs once they run.
func createRunning(t *testing.T, n *virtualNode, ns, prefix string, count int) map[string]types.UID {
	t.Helper()
	return createRunningWithin(t, patience, n, ns, prefix, count)
}

func createRunningWithin(t *testing.T, timeout time.Duration, n *virtualNode, ns, prefix string, count int) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for i := range count {
		pod := createPod(t, ns, fmt.Sprintf("%s-%d", prefix, i), podSpec(n), nil)
		uids[pod.Name] = pod.UID
	}
	eventuallyWithin(t, timeout, "all pods run", func(ctx context.Context) (bool, string) {
		now := running(t, ns)
		for name := range uids {
			if _, ok := now[name]; !ok {
				return false, name + " does not"
			}
		}
		return true, ""
	})
	return uids
}

// running returns the UIDs of the pods of a namespace that run and stay.
func running(t *testing.T, ns string) map[string]types.UID {
	t.Helper()
	list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			uids[pod.Name] = pod.UID
		}
	}
	return uids
}

// An API server that is away for longer than a lease lives: the control plane
// gives the node up, and takes it back when the API server is there again.
func TestAPIServerIsAwayForLong(t *testing.T) {
	if !withOwnControlPlane(t) {
		return
	}
	n, ns := startNode(t), newNamespace(t)
	before := createRunning(t, n, ns, "before", 10)
	if err := cluster.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(70 * time.Second) // the outage: nothing to wait for
	returns := time.Now()        // the node may be back before the API server says that it is ready
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The scheduler and the node lifecycle controller go on up to a minute
	// after the API server, each, and one waits for the other.
	const recovery = 5 * time.Minute
	n.waitReadyWithin(t, recovery, returns)
	now := running(t, ns)
	for name, uid := range before {
		if now[name] != uid {
			t.Errorf("pod %s is not the one that ran before", name)
		}
	}
	createRunningWithin(t, recovery, n, ns, "after", 10)
	for uid, times := range createsByUID(n.journalOf(t, ns)) {
		if times != 1 {
			t.Errorf("pod %s was created %d times", uid, times)
		}
	}
}
