package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Requests is what a pod requests in all, as the scheduler counts it: the sum of
// the containers and sidecars, or what an init container needs beside the
// sidecars before it, if that is more (KEP-753); what is requested for the pod as
// a whole takes the place of the sum (KEP-2837); and the overhead (KEP-688).
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// Limits is the sum of a pod's limits by the rules of Requests, with overhead
// only for resources that have one. A container without a limit adds nothing, so
// that the sum bounds the pod only if all have one.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodLimits(pod, resource.PodResourcesOptions{})
}
