package nodepools

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Overlay is what a pool sets on its nodes, beside what their providers set. It can
// change while they run.
type Overlay struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	Capacity            corev1.ResourceList
}

// LayOver sets on n what the pool sets; the pool has precedence. All fields that a pool
// can set are not nil afterwards. The maps and the list that n had are not changed.
func (o *Overlay) LayOver(n *corev1.Node) {
	n.Labels = overlaid(n.Labels, o.Labels)
	n.Annotations = overlaid(n.Annotations, o.Annotations)
	n.Status.Capacity = overlaid(n.Status.Capacity, o.Capacity)
	n.Status.Allocatable = overlaid(n.Status.Allocatable, o.Capacity)
	taints := make([]corev1.Taint, 0, len(n.Spec.Taints)+len(o.Taints))
	for _, t := range n.Spec.Taints {
		// The API distinguishes taints by key and effect.
		if !slices.ContainsFunc(o.Taints, func(other corev1.Taint) bool { return other.MatchTaint(&t) }) {
			taints = append(taints, t)
		}
	}
	n.Spec.Taints = append(taints, o.Taints...)
}

func overlaid[M ~map[K]V, K comparable, V any](own, over M) M {
	all := make(M, len(own)+len(over))
	maps.Copy(all, own)
	maps.Copy(all, over)
	return all
}
