//go:build !race

package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// Each node looks once a minute whether its Node is as it should be, and whenever that has changed: with many nodes in a
// process that is all the time.
func TestAllocations(t *testing.T) {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	wanted := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{corev1.LabelHostname: "vk", corev1.LabelOSStable: "linux", "type": "virtual-kubelet"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "virtual-kubelet.io/provider", Value: "mock", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		wanted.Status.Conditions = append(wanted.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
	}
	nc, err := NewNodeController(nil, wanted, &apiOfOne{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	current, err := mergeNode(wanted, wanted, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	nc.take(current)
	nc.lease, nc.written = &leaseConfig{}, now.Add(time.Hour)
	allocs.Compare(t, allocs.Operation{Name: "node-as-it-should-be", Do: func() {
		if err := nc.write(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
	}})
}
