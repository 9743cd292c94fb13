package convert

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The group around a pod's containers has what they have together, and no limit that
// one of them is without.
func TestPodResources(t *testing.T) {
	second := func(limits corev1.ResourceList) func(*corev1.Pod, *corev1.Container) {
		return func(pod *corev1.Pod, app *corev1.Container) {
			app.Resources = corev1.ResourceRequirements{Requests: quantities("cpu", "500m"), Limits: quantities("cpu", "1", "memory", "1Mi")}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second", Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits}})
		}
	}
	for want, edit := range map[string]func(*corev1.Pod, *corev1.Container){
		"shares 2 quota 0 memory 0":            func(*corev1.Pod, *corev1.Container) {},
		"shares 512 quota 0 memory 0":          second(nil),
		"shares 1024 quota 150000 memory 0":    second(quantities("cpu", "500m")),
		"shares 768 quota 125000 memory 3<<20": second(quantities("cpu", "250m", "memory", "2Mi")),
		"shares 512 quota 0 memory 5<<20": func(pod *corev1.Pod, app *corev1.Container) {
			second(nil)(pod, app)
			pod.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("memory", "5Mi")}
		},
	} {
		r := testNode.PodResources(podOf(edit))
		memory := fmt.Sprint(r.MemoryLimitInBytes)
		if r.MemoryLimitInBytes > 0 {
			memory = fmt.Sprintf("%d<<20", r.MemoryLimitInBytes>>20)
		}
		if got := fmt.Sprintf("shares %d quota %d memory %s", r.CpuShares, r.CpuQuota, memory); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
