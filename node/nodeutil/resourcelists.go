package nodeutil

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/resourcelist"
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
	if last := r.last.Load(); last != nil && resourcelist.Same(*last, list) {
		return *last
	}
	own := list.DeepCopy()
	r.last.Store(&own)
	return own
}
