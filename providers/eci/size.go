package eci

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// instanceSize is a number of vCPUs that ECI sells, and the GiB of memory that it sells
// with it, in increasing order.
type instanceSize struct {
	cpu    float64
	memory []float64
}

// instanceSizes are those of general container groups, as
// https://www.alibabacloud.com/help/en/eci/user-guide/specify-the-number-of-vcpus-and-memory-size
// lists them.
var instanceSizes = []instanceSize{
	{0.25, []float64{0.5, 1}},
	{0.5, []float64{1, 2}},
	{1, []float64{2, 4, 8}},
	{2, []float64{2, 4, 8, 16}},
	{4, []float64{4, 8, 16, 32}},
	{8, []float64{8, 16, 32, 64}},
	{12, []float64{12, 24, 48, 96}},
	{16, []float64{16, 32, 64, 128}},
	{24, []float64{24, 48, 96, 192}},
	{32, []float64{32, 64, 128, 256}},
	{52, []float64{96, 192, 384}},
	{64, []float64{128, 256, 512}},
}

// size is vCPUs and GiB of memory.
type size struct{ cpu, memory float64 }

// defaultSize is the size of a pod without requests and limits.
var defaultSize = size{cpu: 1, memory: 2}

// roundUpToInstance rounds a size up to the smallest that ECI sells. If there is none,
// the error is permanent.
func (s size) roundUpToInstance() (size, error) {
	if s == (size{}) {
		s = defaultSize
	}
	for _, o := range instanceSizes {
		if o.cpu < s.cpu {
			continue
		}
		for _, memory := range o.memory {
			if memory >= s.memory {
				return size{o.cpu, memory}, nil
			}
		}
	}
	largest := instanceSizes[len(instanceSizes)-1]
	return size{}, errdefs.AsPermanent(fmt.Errorf("ECI sells no container group of %v vCPUs and %v GiB of memory: %v and %v are the most",
		s.cpu, s.memory, largest.cpu, largest.memory[len(largest.memory)-1]))
}

// containerSize returns the larger of requests and limits, which ECI does not
// distinguish; zero for those that are not set.
func containerSize(r *corev1.ResourceRequirements) size {
	return size{
		cpu:    roundUp(requestOrLimit(r, corev1.ResourceCPU).AsApproximateFloat64(), 1000),
		memory: roundUp(requestOrLimit(r, corev1.ResourceMemory).AsApproximateFloat64()/(1<<30), 100),
	}
}

func requestOrLimit(r *corev1.ResourceRequirements, name corev1.ResourceName) *resource.Quantity {
	request, limit := r.Requests[name], r.Limits[name]
	if request.Cmp(limit) > 0 {
		return &request
	}
	return &limit
}

// roundUp rounds up to a multiple of 1/parts, ignoring errors of floating point
// numbers.
func roundUp(value, parts float64) float64 {
	return math.Ceil(value*parts-1e-6) / parts
}

func (s size) plus(other size) size {
	// Sums of decimals are rounded, since 0.1+0.2 is more than 0.3.
	return size{roundUp(s.cpu+other.cpu, 1000), roundUp(s.memory+other.memory, 100)}
}

func (s size) atLeast(other size) size {
	return size{max(s.cpu, other.cpu), max(s.memory, other.memory)}
}

// podSize returns the size that a pod's containers need together: the sum of the
// containers, or the largest init container.
func podSize(pod *corev1.Pod) size {
	var sum, before size
	for i := range pod.Spec.InitContainers {
		before = before.atLeast(containerSize(&pod.Spec.InitContainers[i].Resources))
	}
	for i := range pod.Spec.Containers {
		sum = sum.plus(containerSize(&pod.Spec.Containers[i].Resources))
	}
	sum = sum.atLeast(before)
	if pod.Spec.Resources != nil {
		sum = sum.atLeast(containerSize(pod.Spec.Resources))
	}
	return sum
}
