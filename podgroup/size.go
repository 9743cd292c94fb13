package podgroup

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Size is what a pod needs in all: the larger of its requests and limits.
type Size struct {
	CPU, Memory resource.Quantity
	// Other are the other resources.
	Other corev1.ResourceList
}

// Offer is a number of CPUs that a service sells, with the memory that it sells with it, in
// increasing order.
type Offer struct {
	CPU    string
	Memory []string
}

// Sizes are what a service sells, in increasing order of CPUs.
type Sizes []Offer

// RoundUp returns the smallest size that is sold and large enough. Without any offers it is
// the size itself. If there is none, the error is permanent.
func (s Sizes) roundUp(need Size) (Size, error) {
	if len(s) == 0 {
		return need, nil
	}
	for _, o := range s {
		cpu := resource.MustParse(o.CPU)
		if cpu.Cmp(need.CPU) < 0 {
			continue
		}
		for _, m := range o.Memory {
			if memory := resource.MustParse(m); memory.Cmp(need.Memory) >= 0 {
				return Size{CPU: cpu, Memory: memory, Other: need.Other}, nil
			}
		}
	}
	last := s[len(s)-1]
	return Size{}, errdefs.AsPermanent(fmt.Errorf("nothing is sold with %s CPUs and %s of memory: %s and %s are the most",
		need.CPU.String(), need.Memory.String(), last.CPU, last.Memory[len(last.Memory)-1]))
}

func (s Sizes) validate() error {
	var wrong []error
	for _, o := range s {
		if len(o.Memory) == 0 {
			wrong = append(wrong, fmt.Errorf("size %s has no memory", o.CPU))
		}
		for _, text := range append([]string{o.CPU}, o.Memory...) {
			if _, err := resource.ParseQuantity(text); err != nil {
				wrong = append(wrong, fmt.Errorf("size %q: %w", text, err))
			}
		}
	}
	return errors.Join(wrong...)
}

// SizeOf returns what a container needs: of each resource the larger of request and limit,
// which most services do not distinguish.
func SizeOf(r *corev1.ResourceRequirements) Size {
	return newSize(r.Requests, r.Limits)
}

// sizeOf returns what a pod needs in all.
func sizeOf(pod *corev1.Pod) Size {
	return newSize(podspec.Requests(pod), podspec.Limits(pod))
}

func newSize(requests, limits corev1.ResourceList) Size {
	s := Size{Other: corev1.ResourceList{}}
	for _, list := range []corev1.ResourceList{requests, limits} {
		for name, quantity := range list {
			switch name {
			case corev1.ResourceCPU:
				s.CPU = larger(s.CPU, quantity)
			case corev1.ResourceMemory:
				s.Memory = larger(s.Memory, quantity)
			default:
				s.Other[name] = larger(s.Other[name], quantity)
			}
		}
	}
	return s
}

func larger(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}
