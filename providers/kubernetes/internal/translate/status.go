package translate

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Status returns the status of the home pod of a remote pod.
func (o *Options) Status(remote *corev1.Pod) corev1.PodStatus {
	s := *remote.Status.DeepCopy()
	if s.Phase == "" {
		s.Phase = corev1.PodPending
	}
	// The host is the virtual node. Fields that the remote control plane sets describe
	// the remote pod.
	s.HostIP, s.HostIPs = "", nil
	s.QOSClass, s.NominatedNodeName, s.ObservedGeneration = "", "", 0
	s.ResourceClaimStatuses, s.ExtendedResourceClaimStatus = nil, nil

	s.PodIP = o.homeIP(s.PodIP)
	for i := range s.PodIPs {
		s.PodIPs[i].IP = o.homeIP(s.PodIPs[i].IP)
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && s.Reason == "" {
			s.Reason, s.Message = c.Reason, "in the remote cluster: "+c.Message
		}
		return c.Type == corev1.PodScheduled
	})
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = 0
	}
	// The home pod is scheduled; the kubelet reports that of pods without a scheduler,
	// too.
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	if s.Phase == corev1.PodPending { // the home pod may have been ready with another remote pod
		s.Conditions = addUnready(s.Conditions, "ContainersNotReady")
	}
	restarts := restartsOf(remote)
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range statuses {
			statuses[i].RestartCount += restarts[statuses[i].Name]
		}
	}
	return s
}

func (o *Options) homeIP(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	for _, r := range o.PodIPs {
		if r.Remote.Contains(ip) {
			return r.homeAddress(ip).String()
		}
	}
	return text
}

// homeAddress returns the home address of a remote one.
func (r Range) homeAddress(ip netip.Addr) netip.Addr { return changePrefix(ip, r.Home) }

// changePrefix replaces the network part of an address by the prefix to.
func changePrefix(ip netip.Addr, to netip.Prefix) netip.Addr {
	from, moved := ip.AsSlice(), to.Masked().Addr().AsSlice()
	for i := range moved {
		// The number of bits of this byte that belong to the prefix.
		bits := min(max(to.Bits()-8*i, 0), 8)
		mask := byte(0xff) << (8 - bits)
		moved[i] = moved[i]&mask | from[i]&^mask
	}
	addr, _ := netip.AddrFromSlice(moved)
	return addr
}

// RemoteIP returns the remote IP of one shown at home. It is the inverse of PodIPs.
func (o *Options) RemoteIP(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	for _, r := range o.PodIPs {
		if r.Home.Contains(ip) {
			return changePrefix(ip, r.Remote).String()
		}
	}
	return text
}

// OnlyContainersOf returns a status without containers that the home pod does not have,
// such as sidecars added by the remote cluster's admission.
func OnlyContainersOf(status corev1.PodStatus, pod *corev1.Pod) corev1.PodStatus {
	ours := map[string]struct{}{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			ours[containers[i].Name] = struct{}{}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		ours[pod.Spec.EphemeralContainers[i].Name] = struct{}{}
	}
	for _, statuses := range []*[]corev1.ContainerStatus{&status.InitContainerStatuses, &status.ContainerStatuses, &status.EphemeralContainerStatuses} {
		var kept []corev1.ContainerStatus
		for i := range *statuses {
			if _, ok := ours[(*statuses)[i].Name]; ok {
				kept = append(kept, (*statuses)[i])
			}
		}
		*statuses = kept
	}
	return status
}

// MayRestart reports whether the containers of a home pod may be started again in another
// remote pod, given a status of it: of one that runs once at the most none has started, and
// of one that has ended the API server accepts that it does not go on to be so. Containers
// that the pod does not have at home do not count.
func MayRestart(pod *corev1.Pod, status *corev1.PodStatus) bool {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return false
	}
	for _, of := range []struct {
		containers []corev1.Container
		statuses   []corev1.ContainerStatus
	}{{pod.Spec.InitContainers, status.InitContainerStatuses}, {pod.Spec.Containers, status.ContainerStatuses}} {
		for i := range of.containers {
			c := &of.containers[i]
			for k := range of.statuses {
				if of.statuses[k].Name == c.Name && !mayStartAgain(pod, c, &of.statuses[k].State) {
					return false
				}
			}
		}
	}
	return true
}

func mayStartAgain(pod *corev1.Pod, c *corev1.Container, state *corev1.ContainerState) bool {
	switch {
	case state.Running != nil:
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	case state.Terminated != nil: // an init container that has completed counts as any other
		return c.RestartPolicy == nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || podspec.ShouldRestart(pod, c, state.Terminated.ExitCode)
	}
	return true
}

// Evicted reports whether a remote pod ended because the remote cluster evicted it. A
// pod that is drained has the phase Succeeded if its containers exited with 0 when they
// were stopped.
func Evicted(remote *corev1.Pod) bool {
	if remote.Status.Phase != corev1.PodFailed && remote.Status.Phase != corev1.PodSucceeded {
		return false
	}
	return remote.Status.Reason == "Evicted" || slices.ContainsFunc(remote.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// EndedByDeletion reports whether a remote pod ended because it is being deleted. The
// kubelet gives such a pod a terminal phase before it leaves the API: Succeeded if all
// of its containers exited with 0, else Failed, both without a reason, regardless of
// its restartPolicy. Pods with restartPolicy Always never end this way by themselves,
// and those with OnFailure never fail this way.
func EndedByDeletion(remote *corev1.Pod) bool {
	if remote.DeletionTimestamp == nil || remote.Status.Reason != "" {
		return false
	}
	switch remote.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return remote.Status.Phase == corev1.PodFailed
	}
	return remote.Status.Phase == corev1.PodFailed || remote.Status.Phase == corev1.PodSucceeded
}

// Recreate returns a pod to replace a remote pod that the remote cluster removed. Its
// containers count one restart more; ephemeral ones are not started again.
func Recreate(remote *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: remote.Namespace, Name: remote.Name,
			Labels: remote.Labels, Annotations: maps.Clone(remote.Annotations),
		},
		Spec: *remote.Spec.DeepCopy(),
	}
	next.Spec.NodeName = ""
	next.Spec.EphemeralContainers = nil
	next.Spec.ServiceAccountName, next.Spec.DeprecatedServiceAccount = "", ""
	next.Spec.Priority, next.Spec.PreemptionPolicy = nil, nil
	next.Spec.Overhead = nil // the runtime class may have changed
	AddRestarts(next, &remote.Status)
	RecordEphemeral(next, remote)
	return next
}

// AddRestarts sets the restart counts with which the remote pod next begins: those of
// last, the final status of the pod that it replaces, and one more for each container
// that ran.
func AddRestarts(next *corev1.Pod, last *corev1.PodStatus) {
	restarts := restartsOf(next)
	for _, statuses := range [][]corev1.ContainerStatus{last.InitContainerStatuses, last.ContainerStatuses} {
		for _, s := range statuses {
			restarts[s.Name] += s.RestartCount
			if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
				restarts[s.Name]++
			}
		}
	}
	if text, err := json.Marshal(restarts); err == nil {
		next.Annotations[AnnotationRestarts] = string(text)
	}
}

func restartsOf(remote *corev1.Pod) map[string]int32 {
	restarts := map[string]int32{}
	if text := remote.Annotations[AnnotationRestarts]; text != "" {
		_ = json.Unmarshal([]byte(text), &restarts) // an annotation that cannot be decoded was not written here
	}
	return restarts
}

// Waiting returns the status of a pod that waits to be created again after a delay: see
// Recreate. Why its former remote pod ended is over with that.
func Waiting(status corev1.PodStatus, delay time.Duration) corev1.PodStatus {
	message := "The remote pod was evicted or deleted; it is created again"
	if delay > 0 {
		message += fmt.Sprintf(" after a back-off of %v", delay)
	}
	status.Phase = corev1.PodPending // the phase of the home pod does not go back from Running
	status.Reason, status.Message = "", ""
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			c := &statuses[i]
			if c.State.Terminated != nil {
				c.LastTerminationState = c.State
			}
			c.Ready, c.Started = false, nil
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "RemotePodReplaced", Message: message,
			}}
		}
	}
	setUnready(&status, "RemotePodGone", "")
	status.Conditions = addUnready(status.Conditions, "RemotePodGone")
	return status
}

// Undisrupted returns the status of a pod whose remote pod was created again, with
// DisruptionTarget False if the home pod has it from the former remote pod: home leaves a
// condition that is not reported as it was. One since then is of home's own disruption.
func Undisrupted(status corev1.PodStatus, remote, local *corev1.Pod) corev1.PodStatus {
	is := func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }
	i := slices.IndexFunc(local.Status.Conditions, is)
	if remote.Annotations[AnnotationRestarts] == "" || i < 0 || slices.ContainsFunc(status.Conditions, is) {
		return status
	}
	if c := &local.Status.Conditions[i]; c.Status == corev1.ConditionTrue && !c.LastTransitionTime.After(remote.CreationTimestamp.Time) {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, Reason: "RemotePodReplaced", LastTransitionTime: remote.CreationTimestamp,
		})
	}
	return status
}

// Unready returns the status of a pod that may or may not be running.
func Unready(status corev1.PodStatus, reason, message string) corev1.PodStatus {
	setUnready(&status, reason, message)
	return status
}

// Deleted returns the final status of a pod whose remote pod was deleted. Containers
// that had not terminated were killed.
func Deleted(status corev1.PodStatus, message string, now metav1.Time) corev1.PodStatus {
	return failed(status, "RemotePodDeleted", message, now)
}

// Unschedulable returns the final status of a pod whose remote pod was deleted because
// it was not scheduled. It has the condition DisruptionTarget, which a Job's
// podFailurePolicy can ignore.
func Unschedulable(status corev1.PodStatus, message string, now metav1.Time) corev1.PodStatus {
	status = failed(status, ReasonUnschedulable, message, now)
	if status.Reason == ReasonUnschedulable {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: ReasonUnschedulable, Message: message, LastTransitionTime: now,
		})
	}
	return status
}

// ReasonUnschedulable is the reason of a pod that failed because its remote pod was not
// scheduled.
const ReasonUnschedulable = "RemotePodUnschedulable"

// failed returns the status of a pod that has failed, unless its phase was terminal
// before.
func failed(status corev1.PodStatus, reason, message string, now metav1.Time) corev1.PodStatus {
	if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
		return status
	}
	status.Phase, status.Reason, status.Message = corev1.PodFailed, reason, message
	podstatus.EndContainers(&status, corev1.ContainerStateTerminated{ExitCode: podstatus.ExitUnknown, Reason: reason, Message: message, FinishedAt: now})
	setUnready(&status, "RemotePodGone", "")
	return status
}

func setUnready(status *corev1.PodStatus, reason, message string) {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
			c.LastTransitionTime = metav1.Time{}
		}
	}
}

// addUnready returns conditions with those of readiness, False where they are missing: home
// leaves a condition that is not reported as it was.
func addUnready(conditions []corev1.PodCondition, reason string) []corev1.PodCondition {
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		if !slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == kind }) {
			conditions = append(conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason})
		}
	}
	return conditions
}
