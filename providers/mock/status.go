package mock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// status renders the state of the pod as the kubelet would.
func (h *held) status(hostIP string, now time.Time) corev1.PodStatus {
	created := metav1.NewTime(h.created)
	s := corev1.PodStatus{
		ObservedGeneration: h.pod.Generation,
		Phase:              h.phase(),
		Reason:             h.reason,
		Message:            h.message,
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		StartTime:          &created,
		QOSClass:           h.pod.Status.QOSClass,
	}
	if !h.first.IsZero() {
		s.PodIP = h.ip
		s.PodIPs = []corev1.PodIP{{IP: h.ip}}
	}
	for i := range h.pod.Spec.InitContainers {
		c := &h.pod.Spec.InitContainers[i]
		s.InitContainerStatuses = append(s.InitContainerStatuses, h.containerStatus(c, initKind(c)))
	}
	for i := range h.pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, h.containerStatus(&h.pod.Spec.Containers[i], kindMain))
	}
	for i := range h.pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&h.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, h.containerStatus(c, kindEphemeral))
	}
	s.Conditions = h.conditions(now)
	return s
}

func (h *held) phase() corev1.PodPhase {
	switch {
	case h.stage == stagePending:
		return corev1.PodPending
	case h.stage != stageEnded:
		return corev1.PodRunning
	case h.current.code != 0 || h.reason != "":
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func (h *held) containerStatus(c *corev1.Container, k kind) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		RestartCount: h.restart,
		Started:      ptr.To(false),
	}
	if k == kindInit || k == kindEphemeral {
		s.RestartCount = 0
	}
	i := h.instance(k, c.Name)
	switch {
	case i.started.IsZero() && h.stage == stageEnded:
		s.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: podspec.ExitUnknown,
			Reason:   podspec.ReasonContainerStatusUnknown,
			Message:  podspec.MessageContainerStatusUnknown,
		}
		return s
	case i.started.IsZero():
		reason := "ContainerCreating"
		if len(h.pod.Spec.InitContainers) > 0 && k == kindMain {
			reason = "PodInitializing"
		}
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
		return s
	case i.running():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(i.started)}
		s.Started = ptr.To(true)
		s.Ready = i.isReady()
	case k != kindInit && k != kindEphemeral && h.stage == stageBackOff:
		s.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				backOff(h.restart), c.Name, h.pod.Name, h.pod.Namespace, h.pod.UID),
		}
		s.LastTerminationState.Terminated = h.terminated(c.Name, h.restart, i)
	default:
		s.State.Terminated = h.terminated(c.Name, s.RestartCount, i)
		s.Ready = k == kindInit
	}
	if last := h.lastInstance(k); last != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = h.terminated(c.Name, h.restart-1, *last)
	}
	if k == kindEphemeral {
		s.Ready = false
	}
	s.ImageID = "mock://sha256:" + digest(c.Image)
	s.ContainerID = h.containerID(c.Name, s.RestartCount)
	if k != kindInit && k != kindEphemeral {
		s.Resources = c.Resources.DeepCopy()
		s.AllocatedResources = c.Resources.Requests.DeepCopy()
	}
	return s
}

func (h *held) terminated(container string, restart int32, i instance) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if i.code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: i.code, Reason: reason,
		StartedAt: metav1.NewTime(i.started), FinishedAt: metav1.NewTime(i.ended),
		ContainerID: h.containerID(container, restart),
	}
}

func (h *held) containerID(container string, restart int32) string {
	return "mock://" + digest(string(h.pod.UID)+"/"+container+"/"+strconv.Itoa(int(restart)))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// conditions returns the pod's conditions. Those whose status is the same keep
// their time.
func (h *held) conditions(now time.Time) []corev1.PodCondition {
	started, ended, ready := !h.first.IsZero(), h.stage == stageEnded, h.current.isReady()
	readyReason, readyMessage := "", ""
	if !ready {
		readyReason, readyMessage = "ContainersNotReady", "containers are not ready"
		if ended && h.phase() == corev1.PodSucceeded {
			readyReason, readyMessage = "PodCompleted", ""
		} else if ended {
			readyReason, readyMessage = "PodFailed", ""
		}
	}
	list := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, started && !ended, "", ""),
		condition(corev1.PodInitialized, started, "", ""),
		condition(corev1.PodReady, ready, readyReason, readyMessage),
		condition(corev1.ContainersReady, ready, readyReason, readyMessage),
		condition(corev1.PodScheduled, true, "", ""),
	}
	if !started && !ended {
		list[1].Reason, list[1].Message = "ContainersNotInitialized", "containers are not initialized"
		if len(h.pod.Spec.InitContainers) == 0 {
			list[1] = condition(corev1.PodInitialized, true, "", "")
		}
	}
	for i := range list {
		c := &list[i]
		c.ObservedGeneration = h.pod.Generation
		c.LastTransitionTime = metav1.NewTime(now)
		for _, old := range h.pod.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return list
}

func condition(t corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
	status := corev1.ConditionFalse
	if ok {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: t, Status: status, Reason: reason, Message: message}
}
