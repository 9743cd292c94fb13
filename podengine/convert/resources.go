package convert

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// How the CPU of the API becomes that of control groups: a CPU is 1024 shares, or
// all of the quota's period. The bounds are the kernel's.
//
// See https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	quotaPeriod  = 100_000 // microseconds
	minQuota     = 1000
)

// containerResources are the resources of a container. What the container has no
// limit of is limited by what the pod as a whole may use (KEP-2837).
func (n Node) containerResources(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := withPodLimits(pod, c.Resources.Limits)
	resources := n.resources(cpuRequest(c.Resources), limits)
	resources.OomScoreAdj = podspec.OOMScoreAdj(pod, c, n.MachineMemory)
	resources.HugepageLimits = n.hugePages(limits)
	if n.OOMGroup || n.NoSwap {
		resources.Unified = map[string]string{}
	}
	if n.OOMGroup {
		resources.Unified["memory.oom.group"] = "1"
	}
	if n.NoSwap {
		resources.Unified["memory.swap.max"] = "0"
	}
	return resources
}

// sandboxResources are the sums of the containers', for runtimes that have to
// size a machine.
func (n Node) sandboxResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	options := helper.PodResourcesOptions{ExcludeOverhead: true}
	requests := helper.PodRequests(pod, options)
	return n.resources(requests.Cpu(), helper.PodLimits(pod, options))
}

// PodResources are what a pod may use altogether, with its sandbox: the resources of a
// control group around all its containers. What one of the containers has no limit of
// is not limited. A zero limit is none.
func (n Node) PodResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	whole := pod.Spec.Resources
	if whole == nil {
		whole = &corev1.ResourceRequirements{}
	}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	unlimited := map[corev1.ResourceName]bool{}
	limits := helper.PodLimits(pod, helper.PodResourcesOptions{ContainerFn: func(own corev1.ResourceList, _ helper.ContainerType) {
		for _, name := range names {
			unlimited[name] = unlimited[name] || own.Name(name, resource.DecimalSI).IsZero()
		}
	}})
	for _, name := range names {
		if unlimited[name] && whole.Limits.Name(name, resource.DecimalSI).IsZero() {
			delete(limits, name)
		}
	}
	requests := helper.PodRequests(pod, helper.PodResourcesOptions{})
	return n.resources(requests.Cpu(), limits)
}

// overhead is what the sandbox itself uses (KEP-688).
func (n Node) overhead(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	return n.resources(pod.Spec.Overhead.Cpu(), pod.Spec.Overhead)
}

func (n Node) resources(request *resource.Quantity, limits corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	resources := &runtimeapi.LinuxContainerResources{
		CpuShares:          cpuShares(request.MilliValue()),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	if !n.NoCPUQuota {
		resources.CpuPeriod = quotaPeriod
		resources.CpuQuota = cpuQuota(limits.Cpu().MilliValue())
	}
	return resources
}

// cpuRequest is the limit where no request is given, as in the API.
func cpuRequest(r corev1.ResourceRequirements) *resource.Quantity {
	if _, ok := r.Requests[corev1.ResourceCPU]; ok {
		return r.Requests.Cpu()
	}
	return r.Limits.Cpu()
}

// withPodLimits adds those limits of the pod as a whole that a container has not.
func withPodLimits(pod *corev1.Pod, limits corev1.ResourceList) corev1.ResourceList {
	if pod.Spec.Resources == nil {
		return limits
	}
	all := limits.DeepCopy()
	if all == nil {
		all = corev1.ResourceList{}
	}
	for name, limit := range pod.Spec.Resources.Limits {
		if _, ok := all[name]; !ok && helper.IsSupportedPodLevelResource(name) {
			all[name] = limit
		}
	}
	return all
}

// cpuShares are never none: that would be "not specified", and so a whole CPU's.
func cpuShares(milliCPU int64) int64 {
	return min(max(minShares, milliCPU*sharesPerCPU/1000), maxShares)
}

// cpuQuota is microseconds a period; none without a limit.
func cpuQuota(milliCPU int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(minQuota, milliCPU*quotaPeriod/1000)
}
