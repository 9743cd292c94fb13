package nodeutil

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestEqualResourcesAreShared(t *testing.T) {
	listOf := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse("110")}
	}
	same := func(a, b corev1.ResourceList) bool {
		return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	var lists resourceLists
	given := listOf("4")
	first := lists.shared(given)
	if same(first, given) {
		t.Error("the list is the caller's, who may change it")
	}
	if !same(lists.shared(listOf("4")), first) {
		t.Error("an equal list is another one")
	}
	other := lists.shared(listOf("8"))
	if cpu := other.Cpu().String(); cpu != "8" {
		t.Errorf("another list has %s CPUs, want 8", cpu)
	}
	if cpu := first.Cpu().String(); cpu != "4" {
		t.Errorf("the first list has %s CPUs then, want 4", cpu)
	}
	if binary := lists.shared(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}); binary.Memory().String() != "1Gi" {
		t.Errorf("it has %v of memory, want 1Gi", binary.Memory())
	}
	if decimal := lists.shared(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1073741824")}); decimal.Memory().String() != "1073741824" {
		t.Errorf("it has %v of memory, as another list is written, want 1073741824", decimal.Memory())
	}
}
