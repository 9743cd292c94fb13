package podstatus

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Containers are the statuses of all containers of a pod: init containers, containers and
// ephemeral ones. They may be changed on the way.
func Containers(status *corev1.PodStatus) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for _, statuses := range [...][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
			for i := range statuses {
				if !yield(&statuses[i]) {
					return
				}
			}
		}
	}
}

// EndContainers has all containers that have not ended end like this, each with its own ID
// and the time at which it began; none is ready any more.
func EndContainers(status *corev1.PodStatus, like corev1.ContainerStateTerminated) {
	for c := range Containers(status) {
		c.Ready = false
		if c.State.Terminated != nil {
			continue
		}
		ended := like
		ended.ContainerID = c.ContainerID
		if c.State.Running != nil {
			ended.StartedAt = c.State.Running.StartedAt
		}
		c.State = corev1.ContainerState{Terminated: &ended}
	}
}
