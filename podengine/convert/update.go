package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainer asks to give a container that runs the resources that the pod
// now says (KEP-1287). A limit that is not there is left as it is: the API has
// no way to take one away.
func (n Node) UpdateContainer(pod *corev1.Pod, c *corev1.Container, id string) *runtimeapi.UpdateContainerResourcesRequest {
	return &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux:       n.containerResources(pod, c),
	}
}

// UpdateSandbox sends the new sums to the runtime. Not all runtimes know the
// request: they may answer that they do not implement it.
func (n Node) UpdateSandbox(pod *corev1.Pod, id string) *runtimeapi.UpdatePodSandboxResourcesRequest {
	return &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: id,
		Overhead:     n.overhead(pod),
		Resources:    n.sandboxResources(pod),
	}
}
