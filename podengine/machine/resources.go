package machine

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// reservable are the resources that can be reserved.
var reservable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// validateReserved checks what is reserved, under the field's name.
func validateReserved(field string, reserved corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		if !slices.Contains(reservable, name) {
			return errdefs.InvalidInputf("%s: %s cannot be reserved: give %v", field, name, reservable)
		}
		if amount := reserved[name]; amount.Sign() < 0 {
			return errdefs.InvalidInputf("%s: %s is %s: it must not be negative", field, name, &amount)
		}
	}
	return nil
}

// allocatable is what pods may request of a capacity: what is not reserved, and not
// what has to stay free for no pod to be evicted. What the operator has set aside
// for pods is available to them except for what is reserved.
func (cfg *Config) allocatable(capacity corev1.ResourceList, thresholds eviction.Thresholds) corev1.ResourceList {
	left := capacity.DeepCopy()
	take := func(name corev1.ResourceName, amount resource.Quantity) {
		have, ok := left[name]
		if !ok {
			return
		}
		if have.Sub(amount); have.Sign() < 0 {
			have = *resource.NewQuantity(0, have.Format)
		}
		left[name] = have
	}
	for _, reserved := range []corev1.ResourceList{cfg.KubeReserved, cfg.SystemReserved} {
		for name, amount := range reserved {
			take(name, amount)
		}
	}
	if cfg.Memory == nil {
		take(corev1.ResourceMemory, *resource.NewQuantity(thresholds[eviction.MemoryAvailable].Of(capacity.Memory().Value()), resource.BinarySI))
	}
	take(corev1.ResourceEphemeralStorage, *resource.NewQuantity(thresholds[eviction.NodeFsAvailable].Of(capacity.StorageEphemeral().Value()), resource.BinarySI))
	return left
}
