package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func TestSumsOfResources(t *testing.T) {
	app := container("app", both("cpu", "1", "memory", "1Gi"))
	for _, test := range []struct {
		what             string
		spec             corev1.PodSpec
		requests, limits corev1.ResourceList
	}{
		{"containers add up", corev1.PodSpec{Containers: []corev1.Container{app, app}},
			quantities("cpu", "2", "memory", "2Gi"), quantities("cpu", "2", "memory", "2Gi")},
		{"sidecars add up too (KEP-753)", corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar("s", both("cpu", "250m"))}, Containers: []corev1.Container{app}},
			quantities("cpu", "1250m", "memory", "1Gi"), quantities("cpu", "1250m", "memory", "1Gi")},
		{"an init container counts if it needs more", corev1.PodSpec{
			InitContainers: []corev1.Container{container("i", both("cpu", "3"))}, Containers: []corev1.Container{app}},
			quantities("cpu", "3", "memory", "1Gi"), quantities("cpu", "3", "memory", "1Gi")},
		{"beside the sidecars before it (KEP-753)", corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar("s", both("cpu", "250m")), container("i", both("cpu", "3"))},
			Containers:     []corev1.Container{app}},
			quantities("cpu", "3250m", "memory", "1Gi"), quantities("cpu", "3250m", "memory", "1Gi")},
		{"overhead, where there is a limit (KEP-688)", corev1.PodSpec{
			Overhead: quantities("cpu", "100m", "memory", "64Mi"), Containers: []corev1.Container{container("app", corev1.ResourceRequirements{
				Requests: quantities("cpu", "1", "memory", "1Gi"), Limits: quantities("memory", "1Gi")})}},
			quantities("cpu", "1100m", "memory", "1088Mi"), quantities("memory", "1088Mi")},
		{"of the pod as a whole (KEP-2837)", corev1.PodSpec{
			Resources: new(both("cpu", "4")), Containers: []corev1.Container{app}},
			quantities("cpu", "4", "memory", "1Gi"), quantities("cpu", "4", "memory", "1Gi")},
		{"extended resources", corev1.PodSpec{Containers: []corev1.Container{container("a", both("example.com/gpu", "1")), container("b", both("example.com/gpu", "2"))}},
			quantities("example.com/gpu", "3"), quantities("example.com/gpu", "3")},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := &corev1.Pod{Spec: test.spec}
			if got := Requests(pod); !equality.Semantic.DeepEqual(got, test.requests) {
				t.Errorf("requests: %v, want %v", got, test.requests)
			}
			if got := Limits(pod); !equality.Semantic.DeepEqual(got, test.limits) {
				t.Errorf("limits: %v, want %v", got, test.limits)
			}
		})
	}
}
