package mock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// status renders the state of the pod as the kubelet would. It is the caller's own.
func (h *held) status(hostIP string) corev1.PodStatus {
	created := metav1.NewTime(h.created)
	s := corev1.PodStatus{
		ObservedGeneration: h.pod.generation,
		Phase:              h.phase(),
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		StartTime:          &created,
		QOSClass:           h.qos,
	}
	if h.exceeded {
		s.Reason, s.Message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	}
	if !h.first.IsZero() {
		s.PodIP = h.ip
		s.PodIPs = []corev1.PodIP{{IP: h.ip}}
	}
	for i := range h.pod.containers {
		c := &h.pod.containers[i]
		list := &s.ContainerStatuses
		switch c.kind {
		case kindInit, kindSidecar:
			list = &s.InitContainerStatuses
		case kindEphemeral:
			list = &s.EphemeralContainerStatuses
		}
		*list = append(*list, h.containerStatus(c))
	}
	s.Conditions = h.renderConditions()
	return s
}

func (h *held) phase() corev1.PodPhase {
	switch {
	case h.stage == stagePending:
		return corev1.PodPending
	case h.stage != stageEnded:
		return corev1.PodRunning
	case h.current.code != 0 || h.exceeded:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func (h *held) containerStatus(c *container) corev1.ContainerStatus {
	k := c.kind
	s := corev1.ContainerStatus{
		Name:         c.name,
		Image:        c.image,
		RestartCount: h.restart,
		Started:      ptr.To(false),
	}
	if k == kindInit || k == kindEphemeral {
		s.RestartCount = 0
	}
	i := h.instance(k, c.name)
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
		if k == kindMain && h.initializes() {
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
				backOff(h.restart), c.name, h.pod.name, h.pod.namespace, h.pod.uid),
		}
		s.LastTerminationState.Terminated = h.terminated(c.name, h.restart, i)
	default:
		s.State.Terminated = h.terminated(c.name, s.RestartCount, i)
		s.Ready = k == kindInit
	}
	if last := h.lastInstance(k); last != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = h.terminated(c.name, h.restart-1, *last)
	}
	if k == kindEphemeral {
		s.Ready = false
	}
	s.ImageID = "mock://sha256:" + digest(c.image)
	s.ContainerID = h.containerID(c.name, s.RestartCount)
	if k != kindInit && k != kindEphemeral {
		s.Resources = c.resources.DeepCopy()
		s.AllocatedResources = c.resources.Requests.DeepCopy()
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
	return "mock://" + digest(string(h.pod.uid)+"/"+container+"/"+strconv.Itoa(int(restart)))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
