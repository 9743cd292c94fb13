package eci

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The statuses of a container group.
const (
	groupScheduling     = "Scheduling"
	groupScheduleFailed = "ScheduleFailed"
	groupPending        = "Pending"
	groupRunning        = "Running"
	groupSucceeded      = "Succeeded"
	groupFailed         = "Failed"
	groupExpired        = "Expired"
	groupTerminating    = "Terminating"
	groupUpdating       = "Updating"
	groupRestarting     = "Restarting"
)

// The states of a container.
const (
	containerRunning    = "Running"
	containerTerminated = "Terminated"
)

// statusOf returns the status of a pod from its container group.
func statusOf(pod *corev1.Pod, found *group, hostIPs []string, now metav1.Time) corev1.PodStatus {
	o := podspec.Observation{
		Statuses:  map[string]corev1.ContainerStatus{},
		Networked: found.IntranetIp != "" || found.Ipv6Address != "",
		HostIPs:   hostIPs,
		StartTime: timeOf(found.CreationTime),
		Ended:     ended(found.Status),
		Failure:   failureOf(pod, found),
	}
	for _, ip := range []string{found.IntranetIp, found.Ipv6Address} {
		if ip != "" {
			o.PodIPs = append(o.PodIPs, ip)
		}
	}
	for i := range found.InitContainers {
		s := containerStatus(found, &found.InitContainers[i])
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 // an init container is ready once it has completed
		o.Statuses[s.Name] = s
	}
	for i := range found.Containers {
		s := containerStatus(found, &found.Containers[i])
		o.Statuses[s.Name] = s
	}
	return podspec.Status(pod, o, &pod.Status, now)
}

func ended(status string) bool {
	switch status {
	case groupSucceeded, groupFailed, groupExpired, groupScheduleFailed:
		return true
	}
	return false
}

// usesVolumes reports whether a group with this status has containers that read its
// volumes, or will have.
func usesVolumes(status string) bool { return !ended(status) && status != groupTerminating }

// failureOf returns why the group as a whole failed, if its containers do not show it.
func failureOf(pod *corev1.Pod, found *group) *podspec.Failure {
	switch found.Status {
	case groupScheduleFailed, groupExpired:
		return &podspec.Failure{Reason: found.Status, Message: cmp.Or(lastWarning(found), "ECI gives no reason")}
	case groupFailed:
		if limit := pod.Spec.ActiveDeadlineSeconds; limit != nil && exceededDeadline(found, time.Duration(*limit)*time.Second) {
			return &podspec.Failure{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
		}
		if len(found.Containers) == 0 {
			return &podspec.Failure{Reason: found.Status, Message: lastWarning(found)}
		}
	}
	return nil
}

// exceededDeadline reports whether the group failed at least limit after its creation.
func exceededDeadline(found *group, limit time.Duration) bool {
	created, failed := timeOf(found.CreationTime), timeOf(found.FailedTime)
	return !created.IsZero() && !failed.IsZero() && failed.Sub(created.Time) >= limit
}

func lastWarning(found *group) string {
	message, at := "", ""
	for _, e := range found.Events {
		if e.Type == corev1.EventTypeWarning && e.LastTimestamp >= at {
			message, at = strings.TrimSpace(e.Reason+": "+e.Message), e.LastTimestamp
		}
	}
	return message
}

// containerIDPrefix precedes the ID of the group in the ID of a container.
const containerIDPrefix = "eci://"

// containerStatus returns the status of one container. ECI reports no ID of a container
// and no digest of an image: the ID is made of what identifies one run.
func containerStatus(found *group, c *eci.DescribeContainerGroupsContainer1) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, RestartCount: int32(c.RestartCount), Ready: c.Ready, Started: new(bool),
	}
	id := fmt.Sprintf(containerIDPrefix+"%s/%s/%d", found.ContainerGroupId, c.Name, c.RestartCount)
	now := c.CurrentState
	switch {
	case now.State == containerRunning && ended(found.Status): // its state is older than that of the group
		s.ContainerID, s.ImageID = id, c.Image
		s.Ready = false
		s.State.Terminated = unknownTermination(found, now, id)
	case now.State == containerRunning:
		*s.Started = true
		s.ContainerID, s.ImageID = id, c.Image
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: timeOf(now.StartTime)}
	case now.State == containerTerminated:
		s.ContainerID, s.ImageID = id, c.Image
		s.Ready = false
		s.State.Terminated = terminatedState(now, id)
	default:
		s.Ready = false
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: cmp.Or(now.Reason, now.DetailStatus, "ContainerCreating"), Message: now.Message}
		if found.Status == groupSucceeded { // as above
			s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: timeOf(found.SucceededTime)}}
		}
	}
	if last := c.PreviousState; last.State == containerTerminated {
		s.LastTerminationState.Terminated = terminatedState(eci.DescribeContainerGroupsCurrentState2(last),
			fmt.Sprintf(containerIDPrefix+"%s/%s/%d", found.ContainerGroupId, c.Name, max(c.RestartCount-1, 0)))
	}
	return s
}

// unknownTermination returns the terminated state of a container whose end the API has
// not reported, while its group has ended. It is the kubelet's for a container that it
// cannot find.
func unknownTermination(found *group, was eci.DescribeContainerGroupsCurrentState2, id string) *corev1.ContainerStateTerminated {
	end := &corev1.ContainerStateTerminated{
		ExitCode: podspec.ExitUnknown, Reason: podspec.ReasonContainerStatusUnknown, Message: "The container group ended; ECI does not report how the container ended",
		StartedAt: timeOf(was.StartTime), FinishedAt: timeOf(cmp.Or(found.FailedTime, found.SucceededTime, found.ExpiredTime)), ContainerID: id,
	}
	if found.Status == groupSucceeded {
		end.ExitCode, end.Reason, end.Message = 0, "Completed", ""
	}
	return end
}

func terminatedState(state eci.DescribeContainerGroupsCurrentState2, id string) *corev1.ContainerStateTerminated {
	reason := cmp.Or(state.Reason, state.DetailStatus)
	if reason == "" {
		reason = "Completed"
		if state.ExitCode != 0 {
			reason = "Error"
		}
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: int32(state.ExitCode), Signal: int32(state.Signal), Reason: reason, Message: state.Message,
		StartedAt: timeOf(state.StartTime), FinishedAt: timeOf(state.FinishTime), ContainerID: id,
	}
}

// timeOf parses a timestamp of the API, which is in UTC. The result is zero if text is
// not a timestamp.
func timeOf(text string) metav1.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z"} {
		if t, err := time.Parse(layout, text); err == nil {
			return metav1.NewTime(t)
		}
	}
	return metav1.Time{}
}

// podOf returns a pod made from its container group, for a pod that the API server no
// longer has: it is enough to show it, and to delete it.
func podOf(found *group) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = tagOf(found, TagNamespace), tagOf(found, TagPodName)
	pod.UID = uidOf(found)
	pod.CreationTimestamp = timeOf(tagOf(found, TagCreationTimestamp))
	pod.Spec.NodeName = tagOf(found, TagNodeName)
	pod.Spec.RestartPolicy = corev1.RestartPolicy(found.RestartPolicy)
	for i := range found.InitContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, containerOf(&found.InitContainers[i]))
	}
	for i := range found.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, containerOf(&found.Containers[i]))
	}
	return pod
}

func containerOf(c *eci.DescribeContainerGroupsContainer1) corev1.Container {
	return corev1.Container{Name: c.Name, Image: c.Image, Command: c.Commands, Args: c.Args, WorkingDir: c.WorkingDir}
}
