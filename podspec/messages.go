package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

// maxMessages is how long the termination messages of a pod's containers may be
// together, in bytes, divided evenly
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const maxMessages = 12 << 10

// limitMessages cuts the termination messages of all containers to their share,
// and makes them text: the API holds nothing else.
func limitMessages(s *corev1.PodStatus) {
	all := len(s.InitContainerStatuses) + len(s.ContainerStatuses) + len(s.EphemeralContainerStatuses)
	for c := range podstatus.Containers(s) {
		limitMessage(&c.State, maxMessages/all)
		limitMessage(&c.LastTerminationState, maxMessages/all)
	}
}

// limitMessage replaces what the state points to where it has to be changed: it
// may be the caller's.
func limitMessage(state *corev1.ContainerState, most int) {
	if state.Terminated == nil {
		return
	}
	text := strings.ToValidUTF8(state.Terminated.Message, "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") // but for half a character at its end
	}
	if text != state.Terminated.Message {
		state.Terminated = state.Terminated.DeepCopy()
		state.Terminated.Message = text
	}
}
