package podstatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fields that Equal and Patch do not look at one by one.
var (
	otherStatusFields = fieldsBut[corev1.PodStatus](
		"ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName",
		"HostIP", "HostIPs", "PodIP", "PodIPs", "StartTime", "QOSClass", "Resize",
		"InitContainerStatuses", "ContainerStatuses", "EphemeralContainerStatuses")
	otherContainerFields = fieldsBut[corev1.ContainerStatus](
		"Name", "State", "LastTerminationState", "Ready", "RestartCount", "Image", "ImageID",
		"ContainerID", "Started", "AllocatedResources", "Resources")
)

// Equal reports whether two statuses are the same to the API. Nil equals only nil.
func Equal(a, b *corev1.PodStatus) bool { return equal(a, b, sameOrderedConditions) }

// EqualReports is Equal for statuses that are laid over the API's: their conditions may be in any order, since
// the API keeps its own.
func EqualReports(a, b *corev1.PodStatus) bool { return equal(a, b, sameUnorderedConditions) }

func equal(a, b *corev1.PodStatus, sameConditions func(a, b []corev1.PodCondition) bool) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return a.ObservedGeneration == b.ObservedGeneration &&
		a.Phase == b.Phase &&
		a.Message == b.Message &&
		a.Reason == b.Reason &&
		a.NominatedNodeName == b.NominatedNodeName &&
		a.HostIP == b.HostIP &&
		a.PodIP == b.PodIP &&
		a.QOSClass == b.QOSClass &&
		a.Resize == b.Resize &&
		slices.Equal(a.HostIPs, b.HostIPs) &&
		slices.Equal(a.PodIPs, b.PodIPs) &&
		sameTimes(a.StartTime, b.StartTime) &&
		sameConditions(a.Conditions, b.Conditions) &&
		sameLists(a.InitContainerStatuses, b.InitContainerStatuses, sameContainers) &&
		sameLists(a.ContainerStatuses, b.ContainerStatuses, sameContainers) &&
		sameLists(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses, sameContainers) &&
		otherStatusFields.same(a, b)
}

// sameLists is slices.EqualFunc for elements that are too large to be copied.
func sameLists[T any](a, b []T, same func(a, b *T) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

func sameOrderedConditions(a, b []corev1.PodCondition) bool { return sameLists(a, b, sameCondition) }

// sameUnorderedConditions is sameOrderedConditions for lists in any order. A list that has a type twice cannot be
// merged by type, and has an order.
func sameUnorderedConditions(a, b []corev1.PodCondition) bool {
	if sameOrderedConditions(a, b) {
		return true
	}
	if len(a) != len(b) || !conditions.unique(a) {
		return false
	}
	for i := range a {
		if j := conditions.find(b, string(a[i].Type)); j < 0 || !sameCondition(&a[i], &b[j]) {
			return false
		}
	}
	return true
}

func sameCondition(a, b *corev1.PodCondition) bool {
	return a.Type == b.Type &&
		a.ObservedGeneration == b.ObservedGeneration &&
		a.Status == b.Status &&
		sameTime(a.LastProbeTime, b.LastProbeTime) &&
		sameTime(a.LastTransitionTime, b.LastTransitionTime) &&
		a.Reason == b.Reason &&
		a.Message == b.Message
}

func sameContainers(a, b *corev1.ContainerStatus) bool {
	return a.Name == b.Name &&
		a.Ready == b.Ready &&
		a.RestartCount == b.RestartCount &&
		a.Image == b.Image &&
		a.ImageID == b.ImageID &&
		a.ContainerID == b.ContainerID &&
		samePointers(a.Started, b.Started) &&
		sameStates(&a.State, &b.State) &&
		sameStates(&a.LastTerminationState, &b.LastTerminationState) &&
		sameResources(a.AllocatedResources, b.AllocatedResources) &&
		sameRequirements(a.Resources, b.Resources) &&
		otherContainerFields.same(a, b)
}

func sameStates(a, b *corev1.ContainerState) bool {
	return samePointers(a.Waiting, b.Waiting) &&
		sameRunning(a.Running, b.Running) &&
		sameTerminated(a.Terminated, b.Terminated)
}

func sameRunning(a, b *corev1.ContainerStateRunning) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return sameTime(a.StartedAt, b.StartedAt)
}

func sameTerminated(a, b *corev1.ContainerStateTerminated) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return a.ExitCode == b.ExitCode &&
		a.Signal == b.Signal &&
		a.Reason == b.Reason &&
		a.Message == b.Message &&
		sameTime(a.StartedAt, b.StartedAt) &&
		sameTime(a.FinishedAt, b.FinishedAt) &&
		a.ContainerID == b.ContainerID
}

func sameRequirements(a, b *corev1.ResourceRequirements) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return sameResources(a.Limits, b.Limits) && sameResources(a.Requests, b.Requests) && slices.Equal(a.Claims, b.Claims)
}

func sameResources(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		if other, ok := b[name]; !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

func samePointers[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func sameTimes(a, b *metav1.Time) bool { return sameTime(timeOf(a), timeOf(b)) }

// timeOf is the time to which t points: no time, and the zero one, are the same
// to the API.
func timeOf(t *metav1.Time) metav1.Time {
	if t == nil {
		return metav1.Time{}
	}
	return *t
}

// sameTime compares what the API keeps of two times.
func sameTime(a, b metav1.Time) bool { return a.Unix() == b.Unix() }
