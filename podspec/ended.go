package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

// ExitUnknown is the exit code of a container whose end nobody saw, and
// ReasonContainerStatusUnknown and MessageContainerStatusUnknown are its reason and
// message, as a kubelet reports them.
const (
	ExitUnknown                   = podstatus.ExitUnknown
	ReasonContainerStatusUnknown  = podstatus.ReasonUnknown
	MessageContainerStatusUnknown = podstatus.MessageUnknown
)

// endWaiting has no container of a pod that has ended wait any more: those that were
// to be started, and were not, have ended with an unknown status. Containers that
// other ones come before which have not succeeded still wait, since nobody was about
// to start them.
func endWaiting(pod *corev1.Pod, s *corev1.PodStatus) {
	begun := 0 // init containers that were to be started, as far as is known
	for i := range s.InitContainerStatuses {
		if i == 0 || !untouched(&s.InitContainerStatuses[i]) {
			begun = i + 1
		}
	}
	if pastInit(pod, s) {
		endAll(s.ContainerStatuses)
	}
	endAll(s.InitContainerStatuses[:begun])
}

func endAll(statuses []corev1.ContainerStatus) {
	for i := range statuses {
		if statuses[i].State.Waiting == nil {
			continue
		}
		statuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: ExitUnknown,
			Reason:   ReasonContainerStatusUnknown,
			Message:  MessageContainerStatusUnknown,
		}}
	}
}

// untouched reports whether a container waits for its first start.
func untouched(s *corev1.ContainerStatus) bool {
	return s.State.Waiting != nil && s.LastTerminationState.Terminated == nil
}

// pastInit reports whether a pod has come to the containers that follow the init
// containers.
func pastInit(pod *corev1.Pod, s *corev1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 || slices.ContainsFunc(s.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !untouched(&c) }) {
		return true
	}
	last := len(pod.Spec.InitContainers) - 1
	status := &s.InitContainerStatuses[last]
	if IsSidecar(&pod.Spec.InitContainers[last]) {
		return status.State.Running != nil && status.Started != nil && *status.Started
	}
	exit := lastExit(status)
	return exit != nil && exit.ExitCode == 0
}
