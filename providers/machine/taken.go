package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// reasonTaken is that of a pod whose machine was taken, of which the driver had given notice.
const reasonTaken = "MachineTaken"

// endTaken ends the pods of machines that will be taken, in the time that is left.
func (b *backend) endTaken() {
	var taken []*member
	b.mu.Lock()
	for _, m := range b.members {
		if r := m.record; r != nil && r.Given && r.Final == nil && r.Replaced == nil && !m.ending && (m.isTakenSooner() || !m.asked && !r.TakenAt.IsZero()) {
			taken = append(taken, m)
		}
	}
	b.mu.Unlock()
	for _, m := range taken {
		b.inBackground(m, func(ctx context.Context) { b.endPodOfTaken(ctx, m) })
	}
}

// isTakenSooner reports whether a machine will be taken, sooner than is recorded. b.mu is held.
func (m *member) isTakenSooner() bool {
	at, recorded := m.machine.TakenAt, m.record.TakenAt
	return !at.IsZero() && (recorded.IsZero() || at.Before(recorded.Add(-time.Second)))
}

// endPodOfTaken has the agent of a machine end its pod. That it does is on disk before, so that
// the end is not taken for the pod's own.
func (b *backend) endPodOfTaken(ctx context.Context, m *member) {
	machine := b.seen(m)
	owner := ownerOf(machine)
	pod, err := b.init.Pods.Pods(owner.Namespace).Get(owner.Name)
	if err != nil || pod.UID != owner.UID {
		return // it is not known yet, or it is deleted
	}
	b.mu.Lock()
	first, at := m.record.TakenAt.IsZero(), m.record.TakenAt
	if m.isTakenSooner() {
		next := *m.record
		next.TakenAt = m.machine.TakenAt
		if err := b.records.save(&next); err != nil {
			b.mu.Unlock()
			log.G(ctx).WithField("machine", machine.Name).WithError(err).Warn("Cannot record that a machine will be taken; trying again")
			return
		}
		m.record, at = &next, next.TakenAt
	}
	b.mu.Unlock()
	if first {
		log.G(ctx).WithFields(log.Fields{"machine": machine.Name, "at": at.Format(time.RFC3339)}).Warn("A machine will be taken: its pod is ended")
		if b.init.Events != nil {
			b.init.Events.Eventf(pod, corev1.EventTypeWarning, reasonTaken, "Machine %s will be taken at %s: the pod is ended", machine.Name, at.UTC().Format(time.RFC3339))
		}
	}
	grace := max(min(podspec.GracePeriod(pod, nil), time.Until(at)), time.Second)
	if err := b.linkTo(m).end(ctx, grace); err != nil {
		log.G(ctx).WithField("machine", machine.Name).WithError(err).Warn("The agent of a machine that will be taken does not end its pod; trying again")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.asked = true
}

// takenFailure is why the pod of a machine that was to be taken has ended.
func takenFailure(m *member) *podspec.Failure {
	return &podspec.Failure{
		Reason: reasonTaken, Disrupted: true,
		Message: fmt.Sprintf("Machine %s was to be taken at %s: the pod was ended", m.machine.Name, m.record.TakenAt.UTC().Format(time.RFC3339)),
	}
}
