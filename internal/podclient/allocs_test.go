//go:build !race

package podclient

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// What decoding a pod allocates, by what is known of it.
func TestAllocations(t *testing.T) {
	ended := encode(t, apiPod(newer, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }))
	deleted := encode(t, apiPod(newer, func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = new(int64(30)) }))
	none, known := knowing(nil), knowing(cached(apiPod()))
	allocs.Compare(t,
		allocs.Operation{Name: "new-pod", Do: func() { none.event(ended) }},
		allocs.Operation{Name: "new-status", Do: func() { known.event(ended) }},
		allocs.Operation{Name: "new-metadata", Do: func() { known.event(deleted) }},
		allocs.Operation{Name: "answer-and-event", Do: func() { known.answer(ended); known.event(ended) }},
	)
}
