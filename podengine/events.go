package podengine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The reasons of the events that an Engine records on pods and their containers, besides
// those of packages image, probe and eviction. They are a kubelet's.
const (
	eventSandboxChanged   = "SandboxChanged"
	eventSandboxFailed    = "FailedCreatePodSandBox"
	eventMountFailed      = "FailedMount"
	eventPullSecretFailed = "FailedToRetrieveImagePullSecret"
	eventCreated          = "Created"
	eventStarted          = "Started"
	eventFailed           = "Failed"
	eventPostStartFailed  = "FailedPostStartHook"
	eventPreStopFailed    = "FailedPreStopHook"
	eventBackOff          = "BackOff"
	eventKilling          = "Killing"
	eventKillFailed       = "FailedKillPod"
	eventDeadlineExceeded = "DeadlineExceeded"
	eventResizeStarted    = "ResizeStarted"
	eventResizeCompleted  = "ResizeCompleted"
	eventResizeError      = "ResizeError"
	eventResizePrefix     = "Resize" // with the reason why the resize is pending
)

// containerEvent records an event on a container of a pod.
func (e *Engine) containerEvent(pod *corev1.Pod, container, kind, reason, message string) {
	e.cfg.Events.Event(reference(pod, container), kind, reason, message)
}

// reference is what an event about a container of a pod is about, or about the
// pod if it has no such container.
func reference(pod *corev1.Pod, container string) runtime.Object {
	k, c := findContainer(pod, container)
	if c == nil {
		return pod
	}
	field := "spec.containers"
	switch k {
	case initKind, sidecarKind:
		field = "spec.initContainers"
	case ephemeralKind:
		field = "spec.ephemeralContainers"
	}
	return &corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,
		FieldPath:       field + "{" + container + "}",
	}
}
