package podlifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

// mergeStatus returns the status that the API should have, from the one that it
// has and the provider's word. It is pure: reported and the pod stay as they
// are. What it returns shares their memory, and is for reading. The rules:
//
//   - a terminal phase is final, and a phase does not move backwards;
//   - the start time is set once;
//   - conditions that the provider does not report, or only copies (see
//     otherConditions), are left to their owners, but
//     for those of a resize, which only a node has and which go with it (KEP-1287);
//   - a pod that the provider calls ready is so once its readiness gates are
//     open, which are conditions that others own (KEP-580);
//   - a pod that has ended is not ready, nor are its containers, and these are not restarting;
//   - what only the control plane sets (QoS class, nominated node, resource
//     claims) stays;
//   - addresses appear in the singular and the plural field alike, one of each family.
func mergeStatus(pod *corev1.Pod, reported *corev1.PodStatus, observedGeneration int64, hostIPs []string, now time.Time) corev1.PodStatus {
	current := &pod.Status
	if isTerminal(current.Phase) && reported.Phase != current.Phase {
		return *current
	}
	next := *reported
	if next.Phase == "" || next.Phase == corev1.PodPending && current.Phase == corev1.PodRunning {
		next.Phase = current.Phase
	}
	if current.StartTime != nil {
		next.StartTime = current.StartTime
	} else if next.StartTime == nil {
		next.StartTime = &metav1.Time{Time: now}
	}
	next.ObservedGeneration = max(current.ObservedGeneration, observedGeneration)
	conditions := applyGates(pod, reported.Conditions)
	if isTerminal(next.Phase) {
		conditions = unready(current.Conditions, conditions, next.Phase)
	}
	next.Conditions = mergeConditions(current.Conditions, conditions, observedGeneration, now)
	mergeAddresses(&next, current, hostIPs)

	next.QOSClass = current.QOSClass
	next.NominatedNodeName = current.NominatedNodeName
	next.ResourceClaimStatuses = current.ResourceClaimStatuses
	next.ExtendedResourceClaimStatus = current.ExtendedResourceClaimStatus
	if next.Resize == "" {
		next.Resize = current.Resize
	}
	return next
}

// reasonGates is the kubelet's reason of a pod that only its gates keep from
// being ready.
const reasonGates = "ReadinessGatesNotReady"

// applyGates returns the reported conditions with a Ready that goes by the pod's
// readiness gates.
func applyGates(pod *corev1.Pod, reported []corev1.PodCondition) []corev1.PodCondition {
	if len(pod.Spec.ReadinessGates) == 0 {
		return reported
	}
	i := slices.IndexFunc(reported, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if i < 0 || reported[i].Status != corev1.ConditionTrue && reported[i].Reason != reasonGates {
		return reported
	}
	reported = slices.Clone(reported)
	ready := &reported[i]
	was := ready.Status
	ready.Status, ready.Reason, ready.Message = corev1.ConditionTrue, "", ""
	if missing := closedGates(pod); len(missing) > 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, reasonGates, strings.Join(missing, ", ")
	}
	if ready.Status != was {
		ready.LastTransitionTime = metav1.Time{} // not the provider's
	}
	return reported
}

// unready returns the reported conditions of a pod that has ended, of which those that make a pod ready,
// and that its containers are restarting, are False, also where only the current ones have them.
func unready(current, reported []corev1.PodCondition, phase corev1.PodPhase) []corev1.PodCondition {
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady, corev1.AllContainersRestarting} {
		of := func(c corev1.PodCondition) bool { return c.Type == kind && c.Status != corev1.ConditionFalse }
		i := slices.IndexFunc(reported, func(c corev1.PodCondition) bool { return c.Type == kind })
		switch {
		case i >= 0 && !of(reported[i]), i < 0 && !slices.ContainsFunc(current, of):
			continue
		case i < 0:
			reported = append(slices.Clone(reported), corev1.PodCondition{})
			i = len(reported) - 1
		default:
			reported = slices.Clone(reported)
		}
		reported[i] = corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reasonEnded(phase)}
	}
	return reported
}

// reasonEnded is the kubelet's reason of a pod that is not ready since it has ended.
func reasonEnded(phase corev1.PodPhase) string {
	if phase == corev1.PodSucceeded {
		return "PodCompleted"
	}
	return "PodFailed"
}

// closedGates says of each gate that is not open why it is not, as a kubelet
// does.
func closedGates(pod *corev1.Pod) (missing []string) {
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case pod.Status.Conditions[i].Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, pod.Status.Conditions[i].Status))
		}
	}
	return missing
}

// isResize reports whether a condition is one of a resize under way. Those have the
// generation of the pod that asked for it, which need not be the newest.
func isResize(kind corev1.PodConditionType) bool {
	return kind == corev1.PodResizePending || kind == corev1.PodResizeInProgress
}

// mergeConditions lays the reported conditions over the current ones, but for
// those of a resize that is not reported any more.
func mergeConditions(current, reported []corev1.PodCondition, observedGeneration int64, now time.Time) []corev1.PodCondition {
	merged := slices.Grow([]corev1.PodCondition(nil), len(current)+len(reported))
	for _, c := range current {
		if !isResize(c.Type) || slices.ContainsFunc(reported, func(r corev1.PodCondition) bool { return r.Type == c.Type }) {
			merged = append(merged, c)
		}
	}
	for _, c := range reported {
		if !isResize(c.Type) || c.ObservedGeneration == 0 {
			c.ObservedGeneration = max(c.ObservedGeneration, observedGeneration)
		}
		i := slices.IndexFunc(merged, func(m corev1.PodCondition) bool { return m.Type == c.Type })
		switch {
		case i < 0:
			if c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = metav1.Time{Time: now}
			}
			merged = append(merged, c)
		case c.Type == corev1.PodScheduled && merged[i].Status == c.Status:
			// The scheduler's condition. That it holds for the newest form of the pod is
			// the node's to say.
			merged[i].ObservedGeneration = max(c.ObservedGeneration, merged[i].ObservedGeneration)
		default:
			if same := merged[i]; same.Status == c.Status && same.Reason == c.Reason && same.Message == c.Message {
				c.LastProbeTime = same.LastProbeTime // a look that found nothing new is no news
			}
			if merged[i].Status == c.Status {
				c.LastTransitionTime = merged[i].LastTransitionTime
			} else if c.LastTransitionTime.IsZero() || c.LastTransitionTime.Before(&merged[i].LastTransitionTime) {
				c.LastTransitionTime = metav1.Time{Time: now}
			}
			c.ObservedGeneration = max(c.ObservedGeneration, merged[i].ObservedGeneration)
			merged[i] = c
		}
	}
	return merged
}

func mergeAddresses(next, current *corev1.PodStatus, hostIPs []string) {
	if next.HostIP == "" && len(next.HostIPs) > 0 {
		next.HostIP = next.HostIPs[0].IP
	}
	if next.HostIP == "" {
		next.HostIP, next.HostIPs = current.HostIP, current.HostIPs
	}
	if next.HostIP == "" && len(hostIPs) > 0 {
		next.HostIP = hostIPs[0]
		next.HostIPs = make([]corev1.HostIP, 0, len(hostIPs))
		for _, ip := range hostIPs {
			next.HostIPs = append(next.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	if next.HostIP != "" && len(next.HostIPs) == 0 {
		next.HostIPs = []corev1.HostIP{{IP: next.HostIP}}
	}
	if next.PodIP == "" && len(next.PodIPs) > 0 {
		next.PodIP = next.PodIPs[0].IP
	}
	if next.PodIP != "" && (len(next.PodIPs) == 0 || next.PodIPs[0].IP != next.PodIP) {
		next.PodIPs = []corev1.PodIP{{IP: next.PodIP}}
	}
	next.HostIPs = podstatus.OnePerFamily(next.HostIPs, func(h corev1.HostIP) string { return h.IP })
	next.PodIPs = podstatus.OnePerFamily(next.PodIPs, func(p corev1.PodIP) string { return p.IP })
}

// failedCreate is the status of a pod that the provider could not create. An error that
// no retry cures fails the pod with any restartPolicy, since that is about containers
// that ran: so a controller learns of it, and people do not wait.
func failedCreate(pod *corev1.Pod, err error) *corev1.PodStatus {
	status := pod.Status.DeepCopy()
	meaning := errdefs.Describe(err)
	status.Phase = corev1.PodPending
	if meaning.Class == errdefs.PermanentClass {
		status.Phase = corev1.PodFailed
	}
	status.Reason = meaning.PodReason
	status.Message = err.Error()
	if status.Phase == corev1.PodPending && createdBefore(pod) {
		holdContainers(status, meaning.PodReason)
	} else {
		status.ContainerStatuses = nil // they show the pod as waiting for its configuration
	}
	return status
}

// holdContainers shows the containers of a pod that was created before, and is to be created again, as waiting
// for reason. A provider may know by the rest of their statuses what it has created, and so does another process.
func holdContainers(status *corev1.PodStatus, reason string) {
	for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range containers {
			switch c := &containers[i]; {
			case c.State.Waiting != nil:
				c.State.Waiting.Reason = reason
			case c.State.Terminated == nil: // the API refuses that one which has ended for good waits
				c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
				c.Ready, c.Started = false, new(bool)
			}
		}
	}
}

// createdBefore reports whether the status of a pod that this process sees for the first
// time says that a process before it has had the pod created: it has a start time, and
// not why it was not created. One that has ended may be held, too.
func createdBefore(pod *corev1.Pod) bool {
	status := &pod.Status
	return status.StartTime != nil && (isTerminal(status.Phase) || status.Phase == corev1.PodPending && !notCreated(status))
}

// notCreated reports whether a Pending status is failedCreate's or waitingForConfig's of a pod that was
// not created before. A provider may have the same reasons, of a pod that it was given.
func notCreated(status *corev1.PodStatus) bool {
	containers := status.ContainerStatuses
	if status.Reason != "" {
		return status.Reason == StatusReasonProviderFailed && len(containers) == 0
	}
	return len(containers) > 0 && !slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil || c.State.Waiting.Reason != reasonConfigError || c.ImageID != "" || c.ContainerID != "" || c.Started != nil
	})
}

// explainsFailure reports whether a Pending status of the controller has the reason why the pod was not created.
func explainsFailure(status *corev1.PodStatus) bool {
	return status.Reason == StatusReasonProviderFailed || status.Reason == reasonConfigError || notCreated(status)
}

// nowCreated returns the status of a pod that was created after all, from one that says why it was not.
func nowCreated(status *corev1.PodStatus) *corev1.PodStatus {
	status = status.DeepCopy()
	status.Reason, status.Message, status.InitContainerStatuses, status.ContainerStatuses = "", "", nil, nil
	return status
}

// reasonConfigError is the kubelet's reason of a container that waits for what its
// configuration names.
const reasonConfigError = "CreateContainerConfigError"

// waitingForConfig is the status of a pod that waits for an object that its
// environment refers to; the reason is the kubelet's.
func waitingForConfig(pod *corev1.Pod, err error) *corev1.PodStatus {
	status := pod.Status.DeepCopy()
	status.Phase = corev1.PodPending
	status.Reason, status.Message = "", ""
	if createdBefore(pod) && len(status.ContainerStatuses) > 0 {
		status.Reason, status.Message = reasonConfigError, err.Error()
		holdContainers(status, reasonConfigError)
		return status
	}
	status.ContainerStatuses = nil
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name:  container.Name,
			Image: container.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason:  reasonConfigError,
				Message: err.Error(),
			}},
		})
	}
	return status
}

const (
	lostMessage           = "The provider no longer knows this pod, although it ran it"
	missingMessage        = "The provider does not know this pod, although it ran it; as it does not know many others either, the pod stays as it is until it is known again or is deleted"
	pendingMissingMessage = "The provider does not know this pod, which was created before this agent started; as it does not know many others either, the pod is not created again until most are known again or were deleted"
	// createAgainMessage is that of the event on a pod that is not created again yet.
	createAgainMessage = "The provider does not know this pod, which was created before this agent started; it is created again if the provider goes on not knowing it"
	// neverAgainMessage is that of one where no pod is ever lost.
	neverAgainMessage = "The provider does not know this pod, which was created before this agent started; it is not created again, as no pod counts as lost here: delete it if the provider has lost it"
	// killedExitCode is that of a process that SIGKILL ended.
	killedExitCode = 137
)

// lost is the status of a pod that the provider no longer knows: what had
// not ended by then was killed. latest is the provider's last status, if any.
func lost(pod *corev1.Pod, latest *corev1.PodStatus, now time.Time) *corev1.PodStatus {
	status := cmp.Or(latest, &pod.Status).DeepCopy()
	status.Phase = corev1.PodFailed
	status.Reason = StatusReasonNotFound
	status.Message = lostMessage
	endAll(status, StatusReasonNotFound, now)
	// What the pod did was disrupted: a Job's podFailurePolicy can ignore it.
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: ReasonProviderLost, Message: lostMessage, LastTransitionTime: metav1.Time{Time: now}})
	return status
}

// killed is the final status of a pod whose provider stopped it without saying
// how it ended: that is a success only if each container is known to have ended
// with success before.
func killed(pod *corev1.Pod, latest *corev1.PodStatus, now time.Time) *corev1.PodStatus {
	status := cmp.Or(latest, &pod.Status).DeepCopy()
	if isTerminal(status.Phase) {
		return status
	}
	status.Phase = corev1.PodFailed
	if allTerminated(status) && !slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Terminated.ExitCode != 0 }) {
		status.Phase = corev1.PodSucceeded
	}
	endAll(status, podstatus.ReasonUnknown, now)
	return status
}

// endAll marks all containers as ended, and the pod as not ready.
func endAll(status *corev1.PodStatus, reason string, now time.Time) {
	podstatus.EndContainers(status, corev1.ContainerStateTerminated{
		ExitCode:   killedExitCode,
		Reason:     reason,
		Message:    "The container could not be found when its end was noticed",
		FinishedAt: metav1.Time{Time: now},
	})
	why := reasonEnded(status.Phase)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != corev1.ConditionFalse {
			c.Status = corev1.ConditionFalse
			c.Reason = why
			c.LastTransitionTime = metav1.Time{Time: now}
		}
	}
}
