package podengine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// kind is which of a pod's containers one is.
type kind int

const (
	initKind kind = iota
	sidecarKind
	appKind
	ephemeralKind
)

// eachContainer calls f for all containers of a pod, in their order.
func eachContainer(pod *corev1.Pod, f func(kind, *corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			f(sidecarKind, c)
		} else {
			f(initKind, c)
		}
	}
	for i := range pod.Spec.Containers {
		f(appKind, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		f(ephemeralKind, (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// findContainer returns a container of the spec, or nil.
func findContainer(pod *corev1.Pod, name string) (is kind, found *corev1.Container) {
	eachContainer(pod, func(k kind, c *corev1.Container) {
		if c.Name == name {
			is, found = k, c
		}
	})
	return is, found
}

// sidecarsOf are the sidecars of a pod, in their order.
func sidecarsOf(pod *corev1.Pod) (sidecars []*corev1.Container) {
	eachContainer(pod, func(k kind, c *corev1.Container) {
		if k == sidecarKind {
			sidecars = append(sidecars, c)
		}
	})
	return sidecars
}

// containerStatuses are the statuses of all containers, by name.
func (w *worker) containerStatuses(ctx context.Context, pod *corev1.Pod, stop *stop, seen *runtimeView, now time.Time) map[string]corev1.ContainerStatus {
	statuses := map[string]corev1.ContainerStatus{}
	probes := w.engine.probes.Results(pod.UID)
	eachContainer(pod, func(k kind, c *corev1.Container) {
		s := w.containerStatus(ctx, pod, stop, seen, k, c, now)
		applyProbes(&s, k, probes)
		statuses[c.Name] = s
	})
	return statuses
}

// applyProbes makes a container that runs started and ready as its probes say.
func applyProbes(s *corev1.ContainerStatus, k kind, probes map[string]probe.Result) {
	if s.State.Running == nil {
		return
	}
	result, ok := probes[s.Name]
	started := !ok || result.Started
	s.Started = &started
	s.Ready = started && (!ok || result.Ready) && k != initKind && k != ephemeralKind
}

func (w *worker) containerStatus(ctx context.Context, pod *corev1.Pod, stop *stop, seen *runtimeView, k kind, c *corev1.Container, now time.Time) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(bool)}
	inc, last := seen.newest(c.Name), seen.previous(c.Name)
	if inc == nil {
		s.State.Waiting = w.waiting(pod, c)
		return s
	}
	s.RestartCount = int32(inc.attempt)
	s.ContainerID = w.engine.runtimeName.of(inc.id)
	s.ImageID = inc.imageRef
	if inc.image != "" {
		s.Image = inc.image
	}
	w.setResources(&s, c, inc)
	if was := w.statusBefore(c.Name); inc.recalled != nil && was != nil && bareID(was.ContainerID) == inc.id {
		s.User, s.VolumeMounts = was.User, was.VolumeMounts
	} else {
		s.User = inc.user
		s.VolumeMounts = mountStatuses(c, inc)
	}
	if last != nil {
		s.LastTerminationState.Terminated = w.terminated(ctx, pod, c, last)
	}
	if w.isSuperseded(inc) && stop == nil {
		s.State.Waiting = w.waitingAgain(pod, c)
		s.LastTerminationState.Terminated = w.terminated(ctx, pod, c, inc)
		return s
	}
	switch inc.phase {
	case created, aborted:
		s.State.Waiting = w.waiting(pod, c)
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(inc.started)}
	case unknown:
		s.State = w.stateBefore(c.Name, inc)
	case exited:
		ended := w.terminated(ctx, pod, c, inc)
		waits := w.waitingToRestart(pod, c, inc, now)
		if waits == nil || stop != nil || k == ephemeralKind {
			s.State.Terminated = ended
			s.Ready = k == initKind && inc.exitCode == 0
			break
		}
		s.State.Waiting, s.LastTerminationState.Terminated = waits, ended
	}
	return s
}

// waiting is why a container does not run that has not run yet.
func (w *worker) waiting(pod *corev1.Pod, c *corev1.Container) *corev1.ContainerStateWaiting {
	if f, ok := w.failures[c.Name]; ok && f.reason != "" {
		return &corev1.ContainerStateWaiting{Reason: f.reason, Message: f.message}
	}
	if len(pod.Spec.InitContainers) > 0 {
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

// waitingToRestart is why a container that has ended is not started yet, though
// it will be; nil if it is about to be by its restart policy, or will not.
func (w *worker) waitingToRestart(pod *corev1.Pod, c *corev1.Container, inc *container, now time.Time) *corev1.ContainerStateWaiting {
	again := w.startsAgain(inc)
	if !again && !podspec.ShouldRestart(pod, c, inc.exitCode) {
		return nil
	}
	f := w.failures[c.Name]
	failed := &corev1.ContainerStateWaiting{Reason: f.reason, Message: f.message}
	if f.reason != "" && now.Before(f.until) {
		return failed
	}
	if until, delay := w.downUntil(c, inc, now); now.Before(until) {
		return &corev1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)", delay, c.Name, pod.Name, pod.Namespace, pod.UID),
		}
	}
	if f.reason != "" {
		return failed
	}
	if again { // how it ended must not end the pod
		return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return nil
}

// terminated is how an attempt of a container ended.
func (w *worker) terminated(ctx context.Context, pod *corev1.Pod, c *corev1.Container, inc *container) *corev1.ContainerStateTerminated {
	if inc.phase != exited {
		return nil
	}
	if inc.recalled != nil {
		return inc.recalled.DeepCopy()
	}
	message, ok := w.messages[inc.id]
	if !ok {
		message = w.engine.terminationMessage(ctx, pod, c, inc)
		w.messages[inc.id] = message
	}
	reason := inc.reason
	if reason == "" {
		reason = "Completed"
		if inc.exitCode != 0 {
			reason = "Error"
		}
	}
	return &corev1.ContainerStateTerminated{
		ExitCode:    inc.exitCode,
		Reason:      reason,
		Message:     message,
		StartedAt:   metav1.NewTime(inc.started),
		FinishedAt:  metav1.NewTime(inc.finished),
		ContainerID: w.engine.runtimeName.of(inc.id),
	}
}

// mountStatuses say how the volumes are mounted in an attempt of a container.
func mountStatuses(c *corev1.Container, inc *container) (all []corev1.VolumeMountStatus) {
	for _, m := range c.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if slices.Contains(inc.recursive, m.MountPath) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		all = append(all, s)
	}
	return all
}

// stateBefore is the state of a container that the runtime does not know, as it
// was last reported.
func (w *worker) stateBefore(name string, inc *container) corev1.ContainerState {
	if was := w.statusBefore(name); was != nil && bareID(was.ContainerID) == inc.id {
		return was.State
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: podspec.ReasonContainerStatusUnknown}}
}

// statusBefore is the last reported status of a container, by this process or an
// earlier one.
func (w *worker) statusBefore(name string) *corev1.ContainerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := &w.pod.Status
	if w.status != nil {
		status = w.status
	}
	for s := range podstatus.Containers(status) {
		if s.Name == name {
			return s
		}
	}
	return nil
}
