package zun

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/zuntest"
)

func TestUsage(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("used")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", Image: "busybox"}, corev1.Container{Name: "over", Image: "busybox"})
		r.create(t, pod)
		if err := r.world.Exit(pod.Name, "over", 0); err != nil {
			t.Fatal(err)
		}
		r.status(t, pod)
		r.server.Usage.Memory, r.server.Usage.Limit, r.server.Usage.Received, r.server.Usage.Sent = 3<<20+4097, 64<<20, 200, 30
		r.world.Delay(zuntest.ActionStats, 2, 3*time.Second) // Docker measures twice
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		summary, err := r.GetStatsSummary(ctx)
		if err != nil || len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 2 || summary.Pods[0].PodRef.UID != string(pod.UID) {
			t.Fatalf("%+v, %v", summary, err)
		}
		got := summary.Pods[0]
		for _, c := range got.Containers {
			if *c.Memory.UsageBytes != 3<<20+4097 || *c.Memory.WorkingSetBytes != 3<<20+4097 || c.CPU != nil || c.StartTime.IsZero() {
				t.Errorf("container %s: %+v", c.Name, c)
			}
		}
		if *got.Memory.WorkingSetBytes != 2*(3<<20+4097) || got.CPU != nil || *got.Network.RxBytes != 200 || *got.Network.TxBytes != 30 {
			t.Errorf("the pod: %+v", got)
		}
		if summary.Node.CPU != nil || *summary.Node.Memory.WorkingSetBytes != *got.Memory.WorkingSetBytes {
			t.Errorf("the node, of which no CPU time is known: %+v", summary.Node)
		}
		r.server.Usage.Received, r.server.Usage.Sent = 0, 0
		time.Sleep(time.Minute)
		if summary, err := r.GetStatsSummary(t.Context()); err != nil || len(summary.Pods) != 1 || summary.Pods[0].Network != nil {
			t.Errorf("where nothing counts what the network sends: %+v, %v", summary, err)
		}
	})
}

// The list may be older than the end of a container, or of a capsule.
func TestUsageOfWhatHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.server.Usage.Memory = 1 << 20
		pod, gone := grouptest.NewPod("there"), grouptest.NewPod("gone")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", Image: "busybox"})
		r.create(t, pod)
		r.create(t, gone)
		if _, err := r.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.world.Exit(pod.Name, "side", 1), r.world.Remove(gone.Name)); err != nil {
			t.Fatal(err)
		}
		summary, err := r.GetStatsSummary(t.Context())
		if err != nil || len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 1 || summary.Pods[0].Containers[0].Name != "main" {
			t.Errorf("%+v, %v", summary, err)
		}
	})
}

func TestUsageOfHiddenContainers(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.server.HideContainers = true
		r.create(t, grouptest.NewPod("hidden"))
		for range 4 {
			if summary, err := r.GetStatsSummary(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%+v, %v", summary, err)
			}
			time.Sleep(time.Minute)
		}
		if n := r.world.Calls(zuntest.ActionStats); n != 1 {
			t.Errorf("figures were asked for %d times, which the version of Zun does not have", n)
		}
	})
}
