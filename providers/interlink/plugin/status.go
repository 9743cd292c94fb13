package plugin

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/internal/wire"
)

// unknown returns the status of a pod that is not here: containers without a state. An
// answer without the pod would leave the server with the last status that it has.
func unknown(pod *corev1.Pod) wire.Status {
	s := wire.Status{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}
	for _, c := range pod.Spec.InitContainers {
		s.InitContainers = append(s.InitContainers, corev1.ContainerStatus{Name: c.Name})
	}
	for _, c := range pod.Spec.Containers {
		s.Containers = append(s.Containers, corev1.ContainerStatus{Name: c.Name})
	}
	return s
}

// statusOfPod translates a status.
func statusOfPod(pod *corev1.Pod, found *corev1.PodStatus) wire.Status {
	s := wire.Status{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID), JobID: string(pod.UID)}
	for i := range pod.Spec.InitContainers {
		s.InitContainers = append(s.InitContainers, containerStatus(pod, &pod.Spec.InitContainers[i], found, found.InitContainerStatuses))
	}
	for i := range pod.Spec.Containers {
		s.Containers = append(s.Containers, containerStatus(pod, &pod.Spec.Containers[i], found, found.ContainerStatuses))
	}
	return s
}

// containerStatus returns the status of a container: a pod of interLink has ended
// when its containers have, and only then.
func containerStatus(pod *corev1.Pod, c *corev1.Container, found *corev1.PodStatus, statuses []corev1.ContainerStatus) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
		s = statuses[i]
	}
	ended := s.State.Terminated
	switch {
	case found.Phase == corev1.PodFailed && ended == nil:
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: podspec.ExitUnknown, Reason: cmp.Or(found.Reason, podspec.ReasonContainerStatusUnknown), Message: found.Message,
		}}
	case found.Phase == corev1.PodSucceeded && ended == nil:
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	case found.Phase != corev1.PodFailed && found.Phase != corev1.PodSucceeded && ended != nil && podspec.ShouldRestart(pod, c, ended.ExitCode):
		s.State, s.LastTerminationState = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "Restarting"}}, corev1.ContainerState{Terminated: ended}
	case s.State == corev1.ContainerState{}:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return s
}

// hasEnded reports whether nothing of a pod that is deleted runs any more: providers may
// report its last status for a while.
func hasEnded(found *corev1.PodStatus) bool {
	runs := func(s corev1.ContainerStatus) bool { return s.State.Running != nil }
	return (found.Phase == corev1.PodFailed || found.Phase == corev1.PodSucceeded) &&
		!slices.ContainsFunc(slices.Concat(found.InitContainerStatuses, found.ContainerStatuses), runs)
}

// pingOf returns what a node offers, without its taints, which are about this node.
func pingOf(n *corev1.Node) wire.Ping {
	p := wire.Ping{Status: "ok"}
	for name, quantity := range n.Status.Allocatable {
		switch name {
		case corev1.ResourceCPU:
			p.Resources.CPU = &quantity
		case corev1.ResourceMemory:
			p.Resources.Memory = &quantity
		case corev1.ResourcePods:
			p.Resources.Pods = &quantity
		default:
			if strings.Contains(string(name), "/") {
				p.Resources.Accelerators = append(p.Resources.Accelerators, wire.Accelerator{ResourceType: string(name), Available: quantity})
			}
		}
	}
	slices.SortFunc(p.Resources.Accelerators, func(a, b wire.Accelerator) int { return strings.Compare(a.ResourceType, b.ResourceType) })
	return p
}
