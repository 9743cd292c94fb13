package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/resourcelist"
)

// shareResources replaces a list of resources by another if they are equal. Those of a node,
// wanted and as the API has them, capacity and allocatable, mostly are, and each map takes
// 700 bytes. Such maps are replaced, never changed.
func shareResources(list *corev1.ResourceList, other corev1.ResourceList) {
	if resourcelist.Same(*list, other) {
		*list = other
	}
}
