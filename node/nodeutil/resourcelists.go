package nodeutil

import (
	"maps"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resourceLists has nodes with equal resources, as those of a fleet mostly are, share one
// list of them: a list of three takes as much as one of eight, 700 bytes.
type resourceLists struct {
	last atomic.Pointer[corev1.ResourceList]
}

// shared returns a list that equals the given one and does not change. It is not to be
// changed by who has it, either.
func (r *resourceLists) shared(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return list
	}
	if last := r.last.Load(); last != nil && maps.EqualFunc(*last, list, sameQuantity) {
		return *last
	}
	own := list.DeepCopy()
	r.last.Store(&own)
	return own
}

// sameQuantity reports whether the quantities are written alike, too.
func sameQuantity(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) }
