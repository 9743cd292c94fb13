package podstatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Share returns what is the same report as status, and has what is the same in like of like, so that who
// keeps both keeps it once: like itself, or a copy of status with strings and whole lists of like. Neither
// is changed, nor may they be from then on.
func Share(status, like *corev1.PodStatus) *corev1.PodStatus {
	if EqualReports(status, like) {
		return like
	}
	shared := *status
	if shared.HostIP == like.HostIP {
		shared.HostIP = like.HostIP
	}
	if shared.PodIP == like.PodIP {
		shared.PodIP = like.PodIP
	}
	shared.HostIPs = sharedList(status.HostIPs, like.HostIPs, same)
	shared.PodIPs = sharedList(status.PodIPs, like.PodIPs, same)
	if like.StartTime != nil && sameTimes(status.StartTime, like.StartTime) {
		shared.StartTime = like.StartTime
	}
	if sameUnorderedConditions(status.Conditions, like.Conditions) {
		shared.Conditions = slices.Clip(like.Conditions)
	}
	shared.InitContainerStatuses = sharedList(status.InitContainerStatuses, like.InitContainerStatuses, sameContainers)
	shared.ContainerStatuses = sharedList(status.ContainerStatuses, like.ContainerStatuses, sameContainers)
	shared.EphemeralContainerStatuses = sharedList(status.EphemeralContainerStatuses, like.EphemeralContainerStatuses, sameContainers)
	return &shared
}

// sharedList returns like, without room to grow, if it has the same elements as list, or else
// list.
func sharedList[T any](list, like []T, same func(a, b *T) bool) []T {
	if sameLists(list, like, same) {
		return slices.Clip(like)
	}
	return list
}

func same[T comparable](a, b *T) bool { return *a == *b }
