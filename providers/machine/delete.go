package machine

import (
	"context"
	"time"

	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// graceMargin is how much longer than its grace period a pod may take to end.
	graceMargin = 10 * time.Second
	// drainTime is for how long a machine outlasts its pod, whose last lines are on their way.
	drainTime = 2 * time.Second
	// killTime is how long an agent may take to report the end of a pod that it was to kill, and the
	// last lines of its logs.
	killTime = 5 * time.Second
	// The delay before a deletion is tried again.
	firstDeleteRetry, lastDeleteRetry = time.Second, time.Minute
)

// Delete implements podgroup.Backend: the pod ends within its grace period, then the machine.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	b.mu.Lock()
	m := b.members[u.ID]
	if m == nil || m.record == nil || !m.record.Given && !m.record.Sent {
		b.mu.Unlock()
		return errdefs.NotFoundf("machine %s has no pod", u.ID)
	}
	if m.mayHavePod() { // of which the next process sees as much in its record
		m.record = b.givenLocked(m)
	}
	if m.isReplaced() {
		if next := b.successorLocked(m); next != nil {
			m = next
		}
	}
	begun := m.ending
	m.ending = true
	if m.isReplaced() { // nothing of the pod runs, unless it is being sent
		m.grace = grace
		cancel := m.cancel
		b.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		if !begun {
			b.goOn(func(ctx context.Context) { b.endReplaced(ctx, m) })
		}
		return nil
	}
	if m.hurry == nil {
		m.hurry = make(chan struct{})
	}
	l, over := m.link, m.record.Final != nil || m.machine.State == Ended
	b.mu.Unlock()
	switch {
	case over || l == nil:
		m.hurryUp()
	case grace <= 0:
		b.kill(ctx, m, l)
	default:
		if err := l.end(ctx, grace); err != nil {
			// The grace period goes on: the agent may only be away for a moment.
			log.G(ctx).WithField("machine", u.ID).WithError(err).Warn("The agent of a machine does not end its pod; trying again")
			until := time.Now().Add(grace)
			b.goOn(func(ctx context.Context) { b.endAgain(ctx, m, until) })
		}
	}
	if !begun {
		b.goOn(func(ctx context.Context) { b.endAfter(ctx, m, grace+graceMargin) })
	}
	return nil
}

// kill ends a machine without a grace period: at once, unless its agent answers, and kills the pod or has
// none any more. What it reports of that, such as exit codes, is waited for then, as it may be on its way.
// The pod controller kills a pod that takes a second longer than its grace period, as one does whose
// sidecars end after its containers.
func (b *backend) kill(ctx context.Context, m *member, l *link) {
	if !l.answers() {
		m.hurryUp()
		return
	}
	if err := l.end(ctx, 0); err != nil && !errdefs.IsOnlyNotFound(err) {
		log.G(ctx).WithField("machine", l.name).WithError(err).Warn("The agent of a machine does not kill its pod: the machine is ended")
		m.hurryUp()
		return
	}
	b.goOn(func(ctx context.Context) {
		if periodic.Sleep(ctx, killTime) == nil {
			m.hurryUp()
		}
	})
}

// hurryUp has the end of the machine wait for nothing.
func (m *member) hurryUp() { m.hurried.Do(func() { close(m.hurry) }) }

// end has the agent end its pod.
func (l *link) end(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	provider, err := l.connected(ctx)
	if err != nil {
		return err
	}
	pod, err := l.get(ctx, provider)
	if err != nil {
		return err
	}
	pod = pod.DeepCopy()
	pod.DeletionGracePeriodSeconds = ptr.To(int64(grace.Seconds()))
	return provider.DeletePod(ctx, pod)
}

// endAgain has the agent of a machine end its pod, in the time that is left of the grace period: without
// that the pod would be killed at the end of it, and not know before.
func (b *backend) endAgain(ctx context.Context, m *member, until time.Time) {
	for periodic.Sleep(ctx, b.pingInterval) == nil {
		b.mu.Lock()
		over := m.record.Final != nil || b.members[m.machine.Name] != m
		b.mu.Unlock()
		left := time.Until(until)
		if over || left <= 0 || b.linkTo(m).end(ctx, max(left, time.Second)) == nil {
			return
		}
	}
}

// endAfter deletes a machine when its pod has ended, at the latest after a time, and forgets it
// when lists no longer have it. What this process does not come to, the next one does: the pod
// controller calls Delete again.
func (b *backend) endAfter(ctx context.Context, m *member, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waiting := true; waiting; {
		b.mu.Lock()
		changed, over := b.changed, m.record.Final != nil
		b.mu.Unlock()
		if over {
			select { // the logs that are followed end with the pod
			case <-time.After(drainTime):
			case <-m.hurry:
			case <-ctx.Done():
				return
			}
			break
		}
		select {
		case <-changed:
		case <-m.hurry:
			waiting = false
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
	b.endNow(ctx, m)
}

// endNow deletes a machine until it is gone, and then its record.
func (b *backend) endNow(ctx context.Context, m *member) {
	b.mu.Lock()
	if m.link != nil { // its end is no news
		m.link.stop()
	}
	b.mu.Unlock()
	delay := firstDeleteRetry
	for {
		if b.gone(ctx, m) {
			b.publishGone(m)
			return
		}
		if periodic.Sleep(ctx, delay) != nil {
			return
		}
		delay = min(2*delay, lastDeleteRetry)
	}
}

// gone deletes a machine, and reports whether it is gone and forgotten.
func (b *backend) gone(ctx context.Context, m *member) bool {
	machine := b.seen(m)
	if !b.mayBegin() || b.delete(ctx, machine) != nil {
		return false
	}
	list, err := b.list(ctx)
	if err != nil {
		return false
	}
	if left, ok := list[machine.Name]; ok && left.State != Ended || b.isElsewhere(ctx, m) {
		return false
	}
	if err := b.forget(machine.Name); err != nil {
		log.G(ctx).WithField("machine", machine.Name).WithError(err).Warn("Cannot remove the record of a machine")
		return false
	}
	return true
}

// isElsewhere reports whether a machine of an earlier process, which no list of this one has had, runs
// all the same: its agent answers. The driver has another account, region or host since then, or shows
// too little. That it was deleted says nothing, and without its record nobody would know that it is
// there, and is paid for.
func (b *backend) isElsewhere(ctx context.Context, m *member) bool {
	b.mu.Lock()
	listed := m.listed || m.made
	b.mu.Unlock()
	if listed || !b.answers(ctx, m) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !m.astray && ctx.Err() == nil {
		m.astray = true
		log.G(ctx).WithField("machine", m.machine.Name).Warn("A machine that is to be ended runs, and the driver does not list it: does it have the account, region or host with which the machine was made?")
	}
	return true
}

// answers reports whether the agent of a machine can be reached, or may be when ctx has ended.
func (b *backend) answers(ctx context.Context, m *member) bool {
	b.mu.Lock()
	known := m.record != nil && m.machine.Address != ""
	b.mu.Unlock()
	return known && (b.dial(ctx, m) == nil || ctx.Err() != nil)
}

// abandon ends a machine that has refused its pod for good.
func (b *backend) abandon(m *member) {
	b.mu.Lock()
	begun := m.ending
	m.ending = true
	b.mu.Unlock()
	if !begun {
		b.goOn(func(ctx context.Context) { b.endNow(ctx, m) })
	}
}
