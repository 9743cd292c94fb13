package nodepools_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
)

func TestLayOver(t *testing.T) {
	cpu := func(n string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(n)} }
	overlay := nodepools.Overlay{
		Labels:      map[string]string{"both": "pool", "pool": "1"},
		Annotations: map[string]string{"pool": "1"},
		Taints:      append(taint("both", "pool"), taint("pool", "1")...),
		Capacity:    cpu("2"),
	}
	own := func() *corev1.Node {
		n := &corev1.Node{}
		n.Labels = map[string]string{"both": "own", "own": "1"}
		n.Spec.Taints = append(taint("both", "own"), taint("own", "1")...)
		n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("10")}
		return n
	}
	n := own()
	before := *n
	overlay.LayOver(n)
	want := &corev1.Node{}
	want.Labels = map[string]string{"both": "pool", "own": "1", "pool": "1"}
	want.Annotations = map[string]string{"pool": "1"}
	want.Spec.Taints = append(append(taint("own", "1"), taint("both", "pool")...), taint("pool", "1")...)
	want.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "pods": resource.MustParse("10")}
	want.Status.Allocatable = cpu("2")
	if !equality.Semantic.DeepEqual(n, want) {
		t.Errorf("got %+v, want %+v", n, want)
	}
	if !equality.Semantic.DeepEqual(&before, own()) {
		t.Errorf("what may be somebody else's was written to: %+v", before)
	}

	n = &corev1.Node{}
	(&nodepools.Overlay{}).LayOver(n)
	if n.Labels == nil || n.Annotations == nil || n.Spec.Taints == nil || n.Status.Capacity == nil || n.Status.Allocatable == nil {
		t.Errorf("what is taken back is not set to nothing: %+v", n)
	}
}
