package nodeutil

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// FilterPodsForNodeName passes the pods that are bound to the named node.
func FilterPodsForNodeName(name string) node.PodEventFilterFunc {
	return func(_ context.Context, pod *corev1.Pod) bool { return pod.Spec.NodeName == name }
}

// PodFilters passes the pods that all of the given filters pass.
func PodFilters(filters ...node.PodEventFilterFunc) node.PodEventFilterFunc {
	return func(ctx context.Context, pod *corev1.Pod) bool {
		for _, passes := range filters {
			if !passes(ctx, pod) {
				return false
			}
		}
		return true
	}
}
