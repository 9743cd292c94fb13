package podstatus

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// started is a pod of three containers that has just been scheduled, and what it
// is once it runs.
func started() (was, is *corev1.PodStatus) {
	now := metav1.Time{Time: time.Unix(1700000000, 0)}
	was = &corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}},
	}
	is = was.DeepCopy()
	is.Phase, is.StartTime = corev1.PodRunning, &now
	is.HostIP, is.HostIPs = "10.0.0.1", []corev1.HostIP{{IP: "10.0.0.1"}}
	is.PodIP, is.PodIPs = "10.1.2.3", []corev1.PodIP{{IP: "10.1.2.3"}}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		is.Conditions = append(is.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, ObservedGeneration: 1})
	}
	for i := range 3 {
		is.ContainerStatuses = append(is.ContainerStatuses, corev1.ContainerStatus{
			Name: fmt.Sprint("c", i), Image: "nginx", ImageID: "docker.io/library/nginx@sha256:0123", ContainerID: "containerd://0123",
			Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			Resources: &corev1.ResourceRequirements{},
		})
	}
	return was, is
}

func BenchmarkPatch(b *testing.B) {
	was, is := started()
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if patch, err := Patch("u1", was, is); err != nil || patch == nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if patch, err := genericPatch("u1", was, is); err != nil || patch == nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEqual(b *testing.B) {
	_, is := started()
	other := is.DeepCopy()
	b.ReportAllocs()
	for b.Loop() {
		if !Equal(is, other) {
			b.Fatal("unequal")
		}
	}
}
