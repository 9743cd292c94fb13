package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

// QOSClass is the class of a pod's quality of service, which the API server has
// written into the status, and which is computed from the spec where it has not.
//
// See https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass { return qos.GetPodQOS(pod) }

// The OOM scores of https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior.
const (
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	oomBurstableMin = 2
	oomBurstableMax = 999
)

// nodeCritical is the priority of the class system-node-critical.
const nodeCritical = 2000001000

// OOMScoreAdj is the value of oom_score_adj for the processes of a container, on
// a machine with so many bytes of memory; 0 if that is not known. The more of the
// machine a burstable container requests, the later is it killed.
//
// A sidecar is not killed before the pod's containers, which need it (KEP-753);
// what is requested for the pod as a whole, beyond what its containers do, counts
// in equal parts for all of them (KEP-2837).
func OOMScoreAdj(pod *corev1.Pod, c *corev1.Container, machineMemory int64) int64 {
	if p := pod.Spec.Priority; p != nil && *p >= nodeCritical {
		return oomGuaranteed
	}
	switch QOSClass(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	share := sharedMemory(pod)
	score := burstableOOMScore(c, share, machineMemory)
	if isInit(pod, c) && IsSidecar(c) {
		for i := range pod.Spec.Containers {
			score = min(score, burstableOOMScore(&pod.Spec.Containers[i], share, machineMemory))
		}
	}
	return score
}

// burstableOOMScore is min(max(2, 1000 - 1000 * request / machine), 999).
func burstableOOMScore(c *corev1.Container, share, machineMemory int64) int64 {
	if machineMemory <= 0 {
		return oomBurstableMax
	}
	// In floating point: a thousand times some requests overflows.
	part := (float64(c.Resources.Requests.Memory().Value()) + float64(share)) / float64(machineMemory)
	return min(max(oomBurstableMin, 1000-int64(1000*part)), oomBurstableMax)
}

// sharedMemory is each container's part of the memory that is requested for the
// pod and by no container.
func sharedMemory(pod *corev1.Pod) int64 {
	if !resource.IsPodLevelRequestsSet(pod) {
		return 0
	}
	options := resource.PodResourcesOptions{ExcludeOverhead: true}
	whole := resource.PodRequests(pod, options)
	parts := resource.AggregateContainerRequests(pod, options)
	count := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		if IsSidecar(&pod.Spec.InitContainers[i]) {
			count++
		}
	}
	if count == 0 {
		return 0
	}
	return max(0, whole.Memory().Value()-parts.Memory().Value()) / count
}
