package machine

import (
	"context"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

const (
	// maxText is the size in bytes of the longest text of a status, which the machine writes, and
	// maxContainers the most containers in it.
	maxText, maxContainers = 4 << 10, 1000
)

// clip returns the beginning of a text, of size bytes at most.
func clip(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}

func ownerOf(m Machine) podgroup.Owner {
	tags := m.Tags
	return podgroup.Owner{Namespace: joined(tags, podgroup.TagNamespace), Name: joined(tags, podgroup.TagPodName), UID: types.UID(tags[podgroup.TagUID])}
}

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// bounds returns what is kept of a status: none of its texts is long, and nothing in it is of
// another machine's making, such as addresses.
func bounds(in *corev1.PodStatus) *corev1.PodStatus {
	out := &corev1.PodStatus{Phase: in.Phase, Reason: clip(in.Reason, maxText), Message: clip(in.Message, maxText)}
	keep := func(all []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
		for _, s := range all[:min(len(all), maxContainers)] {
			kept = append(kept, corev1.ContainerStatus{
				Name: clip(s.Name, 253), ImageID: clip(s.ImageID, maxText), RestartCount: s.RestartCount, Ready: s.Ready, Started: s.Started,
				State: boundedState(s.State), LastTerminationState: boundedState(s.LastTerminationState),
			})
		}
		return kept
	}
	out.InitContainerStatuses, out.ContainerStatuses = keep(in.InitContainerStatuses), keep(in.ContainerStatuses)
	return out
}

func boundedState(s corev1.ContainerState) corev1.ContainerState {
	s = *s.DeepCopy()
	if w := s.Waiting; w != nil {
		w.Reason, w.Message = clip(w.Reason, maxText), clip(w.Message, maxText)
	}
	if t := s.Terminated; t != nil {
		t.Reason, t.Message = clip(t.Reason, maxText), clip(t.Message, maxText)
	}
	return s
}

// unitLocked is what podgroup is shown of a machine that has its pod. b.mu is held.
func (b *backend) unitLocked(m *member) podgroup.Unit {
	if m.record != nil && m.record.Final != nil {
		return *m.record.Final
	}
	if m.isReplaced() {
		shown := m.record.Replaced.Shown
		if m.ending {
			shown.Phase = podgroup.Stopping
		}
		return shown
	}
	u := podgroup.Unit{ID: m.machine.Name, Tags: m.machine.Tags, Created: m.since}
	if m.record != nil {
		u.Created = m.record.Created
		if m.record.Past != nil {
			u.Created = m.record.Past.Created
		}
	}
	if m.machine.Address != "" {
		u.IPs = []string{m.machine.Address}
	}
	if m.link == nil {
		u.Unknown = true
		return u
	}
	status, images := m.link.observed()
	if status == nil {
		// A machine that has just been given its pod has nothing to report; of one that an earlier
		// process gave it to, what the pod's status says stays.
		u.Unknown = images == nil
		return u
	}
	switch status.Phase {
	case corev1.PodRunning:
		u.Phase = podgroup.Running
	case corev1.PodSucceeded:
		u.Phase = podgroup.Succeeded
	case corev1.PodFailed:
		u.Phase = podgroup.Failed
		if status.Reason != "" {
			u.Failure = &podspec.Failure{Reason: status.Reason, Message: status.Message}
		}
	}
	if m.ending && u.Phase != podgroup.Succeeded && u.Phase != podgroup.Failed {
		u.Phase = podgroup.Stopping
	}
	for _, all := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range all {
			c := containerOf(&all[i])
			c.Image = images[c.Name]
			if m.record != nil {
				m.record.Past.addTo(&c)
			}
			u.Containers = append(u.Containers, c)
			if c.Now.Finished.After(u.Ended) {
				u.Ended = c.Now.Finished
			}
		}
	}
	return u
}

func containerOf(s *corev1.ContainerStatus) podgroup.Container {
	return podgroup.Container{
		Name: s.Name, ImageID: s.ImageID, Restarts: s.RestartCount, Ready: &s.Ready, Started: s.Started,
		Now: runOf(s.State), Last: runOf(s.LastTerminationState),
	}
}

func runOf(s corev1.ContainerState) podgroup.Run {
	switch {
	case s.Running != nil:
		return podgroup.Run{State: podgroup.Executing, Started: s.Running.StartedAt.Time}
	case s.Terminated != nil:
		t := s.Terminated
		return podgroup.Run{
			State: podgroup.Terminated, Reason: t.Reason, Message: t.Message, ExitCode: t.ExitCode, Signal: t.Signal,
			Started: t.StartedAt.Time, Finished: t.FinishedAt.Time,
		}
	case s.Waiting != nil:
		return podgroup.Run{Reason: s.Waiting.Reason, Message: s.Waiting.Message}
	}
	return podgroup.Run{}
}

// settle records the end of a pod that the agent has reported.
func (b *backend) settle(ctx context.Context, m *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settleLocked(ctx, m)
}

// settleLocked records the end of a pod that the agent has reported, and reports whether it has: the
// machine may be gone later. What cannot be recorded, check tries again. b.mu is held.
func (b *backend) settleLocked(ctx context.Context, m *member) bool {
	if m.record == nil || !m.record.Given || m.record.Final != nil || m.isReplaced() {
		return false
	}
	final := b.unitLocked(m)
	if final.Phase != podgroup.Succeeded && final.Phase != podgroup.Failed {
		return false
	}
	if !m.record.TakenAt.IsZero() {
		return b.concludeLocked(ctx, m, takenFailure(m), false)
	}
	if now := time.Now(); final.Ended.IsZero() || final.Ended.After(now) || final.Ended.Before(m.since) {
		final.Ended = now
	}
	return b.setFinalLocked(ctx, m, final, false)
}

// lose records that an agent does not have the pod that it was given.
func (b *backend) lose(ctx context.Context, m *member) {
	b.mu.Lock()
	if m.record == nil || !m.record.Given || m.record.Final != nil || m.ending || m.isReplaced() {
		if m.hurry != nil { // it was to end it, and has nobody to report that
			m.hurryUp()
		}
		b.mu.Unlock()
		return
	}
	failure := &podspec.Failure{Reason: reasonLost, Message: "The agent of machine " + m.machine.Name + " does not have the pod that it was given", Disrupted: true}
	if !m.record.TakenAt.IsZero() {
		failure = takenFailure(m)
	}
	if !b.settleLocked(ctx, m) { // else it had ended before
		b.concludeLocked(ctx, m, failure, true)
	}
	b.mu.Unlock()
	b.publish(m)
}
