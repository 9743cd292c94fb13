package node

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A controller has one list of the resources of its node where all are equal, and a later
// report that changes one of them changes no other.
func TestControllerHasEqualResourcesOnce(t *testing.T) {
	resources := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse("110")}
	}
	node := func() *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}, Status: corev1.NodeStatus{Capacity: resources("4"), Allocatable: resources("4")}}
	}
	nc, err := NewNodeController(nil, node(), &apiOfOne{})
	if err != nil {
		t.Fatal(err)
	}
	nc.notify(node())
	nc.take(node())
	lists := map[uintptr]bool{}
	for _, list := range []corev1.ResourceList{nc.wanted.Status.Capacity, nc.wanted.Status.Allocatable, nc.current.Status.Capacity, nc.current.Status.Allocatable} {
		lists[reflect.ValueOf(list).Pointer()] = true
	}
	if len(lists) != 1 {
		t.Errorf("it has %d lists of equal resources, want 1", len(lists))
	}

	nc.notify(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}})
	for what, got := range map[string]struct {
		list corev1.ResourceList
		want string
	}{
		"wanted capacity":    {nc.wanted.Status.Capacity, "4"},
		"wanted allocatable": {nc.wanted.Status.Allocatable, "3"},
		"the API's":          {nc.current.Status.Allocatable, "4"},
	} {
		if cpu := got.list.Cpu().String(); cpu != got.want {
			t.Errorf("%s: it has %s CPUs, want %s", what, cpu, got.want)
		}
	}
}
