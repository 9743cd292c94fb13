package node

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// shareResources replaces a list of resources by another if they are equal. Those of a node,
// wanted and as the API has them, capacity and allocatable, mostly are, and each map takes
// 700 bytes. Such maps are replaced, never changed.
func shareResources(list *corev1.ResourceList, other corev1.ResourceList) {
	same := func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) }
	if maps.EqualFunc(*list, other, same) {
		*list = other
	}
}
