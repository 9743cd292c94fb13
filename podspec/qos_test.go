package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const gi = 1 << 30

// The scores are documented in
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior.
func TestOOMScoreAdj(t *testing.T) {
	burstable := func(memory string) corev1.Container { return container("app", requests("memory", memory)) }
	for _, test := range []struct {
		what    string
		spec    corev1.PodSpec
		init    bool // the score of the first init container, not of the first container
		machine int64
		want    int64
	}{
		{"Guaranteed", corev1.PodSpec{Containers: []corev1.Container{container("app", both("cpu", "1", "memory", "1Gi"))}}, false, 4 * gi, -997},
		{"BestEffort", corev1.PodSpec{Containers: []corev1.Container{container("app", requests())}}, false, 4 * gi, 1000},
		{"Burstable by its part of the machine", corev1.PodSpec{Containers: []corev1.Container{burstable("1Gi")}}, false, 4 * gi, 750},
		{"Burstable with all of the machine", corev1.PodSpec{Containers: []corev1.Container{burstable("4Gi")}}, false, 4 * gi, 2},
		{"Burstable with more than the machine", corev1.PodSpec{Containers: []corev1.Container{burstable("9Ei")}}, false, 4 * gi, 2},
		{"Burstable with next to nothing", corev1.PodSpec{Containers: []corev1.Container{burstable("1")}}, false, 4 * gi, 999},
		{"Burstable by CPU only", corev1.PodSpec{Containers: []corev1.Container{container("app", requests("cpu", "1"))}}, false, 4 * gi, 999},
		{"Burstable on an unknown machine", corev1.PodSpec{Containers: []corev1.Container{burstable("1Gi")}}, false, 0, 999},
		{"node-critical", corev1.PodSpec{Priority: new(int32(nodeCritical)), Containers: []corev1.Container{burstable("1Gi")}}, false, 4 * gi, -997},
		{"cluster-critical is not node-critical", corev1.PodSpec{Priority: new(int32(nodeCritical - 1000)), Containers: []corev1.Container{burstable("1Gi")}}, false, 4 * gi, 750},
		{"a sidecar is not killed before the containers (KEP-753)", corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar("s", requests())},
			Containers:     []corev1.Container{burstable("1Gi"), container("other", requests("memory", "2Gi"))},
		}, true, 4 * gi, 500},
		{"a sidecar's own score, if it is lower", corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar("s", requests("memory", "3Gi"))},
			Containers:     []corev1.Container{burstable("1Gi")},
		}, true, 4 * gi, 250},
		{"an init container is no sidecar", corev1.PodSpec{
			InitContainers: []corev1.Container{container("i", requests())},
			Containers:     []corev1.Container{burstable("1Gi")},
		}, true, 4 * gi, 999},
		{"what is requested for the pod counts in equal parts (KEP-2837)", corev1.PodSpec{
			Resources:  new(requests("memory", "3Gi")),
			Containers: []corev1.Container{burstable("1Gi"), container("other", requests())},
		}, false, 4 * gi, 500},
		{"also for sidecars (KEP-2837)", corev1.PodSpec{
			Resources:      new(requests("memory", "2Gi")),
			InitContainers: []corev1.Container{sidecar("s", requests())},
			Containers:     []corev1.Container{container("app", requests())},
		}, true, 4 * gi, 750},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := &corev1.Pod{Spec: test.spec}
			c := &pod.Spec.Containers[0]
			if test.init {
				c = &pod.Spec.InitContainers[0]
			}
			if got := OOMScoreAdj(pod, c, test.machine); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestQOSClass(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("app", both("cpu", "1", "memory", "1Gi"))}}}
	if got := QOSClass(pod); got != corev1.PodQOSGuaranteed {
		t.Errorf("computed: %s", got)
	}
	// The class does not change while the pod lives, also not by a resize.
	pod.Status.QOSClass = corev1.PodQOSBurstable
	if got := QOSClass(pod); got != corev1.PodQOSBurstable {
		t.Errorf("from the status: %s", got)
	}
}
