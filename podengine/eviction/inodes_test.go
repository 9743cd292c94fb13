package eviction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A machine that runs out of inodes evicts the pod with the most of them, and not the one with
// the most bytes.
func TestVictimOfInodes(t *testing.T) {
	usage := map[string]Usage{
		"large file":       {Storage: map[string]int64{"c": 1 << 40}, Inodes: 2},
		"many small files": {Storage: map[string]int64{"c": 1 << 20}, Inodes: 1 << 20},
	}
	var pods []*corev1.Pod
	for _, name := range []string{"large file", "many small files"} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		pod.Name = name
		pods = append(pods, pod)
	}
	for signal, want := range map[Signal]string{
		NodeFsInodesFree: "many small files", ImageFsInodesFree: "many small files",
		NodeFsAvailable: "large file", ImageFsAvailable: "large file",
	} {
		if got := Victim(signal, pods, func(p *corev1.Pod) Usage { return usage[p.Name] }); got.Name != want {
			t.Errorf("%s: %q is evicted, want %q", signal, got.Name, want)
		}
	}
}
