package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

const (
	reasonLost        = "MachineLost"
	reasonUnreachable = "MachineUnreachable"
	// orphanAfter is in how many lists in a row a machine has to have no pod before it is ended.
	orphanAfter = 3
	// massSilence is how many agents have to be out of reach at once, and more than answer, for the
	// network of the node to be taken for the cause.
	massSilence = 3
)

// List implements podgroup.Lister: a unit is a machine that has been given its pod.
func (b *backend) List(ctx context.Context, _ map[string]string, _ string) (podgroup.Page, error) {
	if err := b.start(); err != nil {
		return podgroup.Page{}, err
	}
	if _, err := b.list(ctx); err != nil {
		return podgroup.Page{}, err
	}
	b.check(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	var page podgroup.Page
	for _, m := range b.members {
		if b.hasUnitLocked(m) {
			page.Units = append(page.Units, b.unitLocked(m))
		}
	}
	return page, nil
}

// Watch implements podgroup.Watcher. It begins with all units, and with those that have gone since
// the last watch.
func (b *backend) Watch(ctx context.Context, _ string, changed func(podgroup.Unit)) error {
	b.notifying.Lock()
	b.mu.Lock()
	b.notify = changed
	now := b.unseen
	b.unseen = nil
	for _, m := range b.members {
		if b.hasUnitLocked(m) {
			now = append(now, b.unitLocked(m))
		}
	}
	b.mu.Unlock()
	for _, u := range now {
		changed(u)
	}
	b.notifying.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notify = nil
	return nil
}

// publish reports a machine's unit.
func (b *backend) publish(m *member) {
	b.notifying.Lock()
	defer b.notifying.Unlock()
	b.mu.Lock()
	if m.record == nil || !m.record.Given {
		b.mu.Unlock()
		return
	}
	unit, notify := b.unitLocked(m), b.notify
	if b.members[unit.ID] != m { // it is gone, which was reported
		notify = nil
	}
	b.mu.Unlock()
	if notify != nil {
		notify(unit)
	}
}

// publishGone reports that a machine is gone, now or when a watch begins.
func (b *backend) publishGone(m *member) {
	b.notifying.Lock()
	defer b.notifying.Unlock()
	b.mu.Lock()
	unit, notify := b.unitLocked(m), b.notify
	unit.Phase = podgroup.Gone
	if notify == nil {
		b.unseen = append(b.unseen, unit)
	}
	b.mu.Unlock()
	if notify != nil {
		notify(unit)
	}
}

// watchMachines lists the machines at intervals, and ends those without a pod.
func (b *backend) watchMachines(ctx context.Context) {
	for {
		if b.mayBegin() {
			b.look(ctx)
		}
		if periodic.Sleep(ctx, b.cfg.Refresh.Duration) != nil {
			return
		}
	}
}

func (b *backend) look(ctx context.Context) {
	if err := b.authority.renewNode(); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot renew the certificate that the node shows machines")
	}
	if _, err := b.list(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot look after machines")
		return
	}
	b.check(ctx)
	b.endTaken()
	b.replaceLost()
	b.endFinished()
	b.endOrphans()
	b.keepReserve()
}

// check connects with machines that have a pod, and decides which pods have ended, or have lost their
// machine. A list has just been made.
func (b *backend) check(ctx context.Context) {
	var over []*member
	b.mu.Lock()
	for _, m := range b.members {
		if b.settleLocked(ctx, m) || b.loseLocked(ctx, m) {
			over = append(over, m)
		}
	}
	var links []*member
	for _, m := range b.members {
		if m.record != nil && (m.record.Given || m.record.Sent) && !m.record.Lost && !m.ending && m.machine.Address != "" {
			links = append(links, m)
		}
	}
	b.mu.Unlock()
	for _, m := range links {
		b.linkTo(m)
	}
	for _, m := range over {
		b.publish(m)
	}
}

// loseLocked records that a pod has lost its machine, and reports whether it has. b.mu is held.
func (b *backend) loseLocked(ctx context.Context, m *member) bool {
	if m.record == nil || !m.record.Given || m.record.Final != nil || m.ending || m.isReplaced() {
		return false
	}
	failure := b.lossLocked(m)
	if failure == nil {
		return false
	}
	if !m.record.TakenAt.IsZero() {
		failure = takenFailure(m)
	}
	if !b.concludeLocked(ctx, m, failure, true) {
		return false
	}
	log.G(ctx).WithFields(log.Fields{"machine": m.machine.Name, "reason": failure.Reason}).Warn("A pod has lost its machine")
	return true
}

// lossLocked returns why the pod of a machine has failed; nil if it has not. b.mu is held.
func (b *backend) lossLocked(m *member) *podspec.Failure {
	name, ended, missing := m.machine.Name, m.machine.State == Ended, !m.missing.IsZero()
	lost := func(reason, format string, args ...any) *podspec.Failure {
		return &podspec.Failure{Reason: reason, Message: fmt.Sprintf(format, args...), Disrupted: true}
	}
	long, answers := missing && time.Since(m.missing) >= b.cfg.MissingTimeout.Duration, m.link != nil && m.link.answers()
	switch {
	// It may have run on until now, and does while lists lack it for a moment only.
	case m.silent && (ended && !missing || long && !answers):
		return lost(reasonUnreachable, "The agent of machine %s could not be reached for %v: the machine was deleted", name, b.cfg.UnreachableTimeout.Duration)
	case ended && !missing:
		return lost(reasonLost, "Machine %s has ended", name)
	case long && !answers:
		return lost(reasonLost, "Machine %s is gone", name)
	case long:
		if !m.warned {
			log.G(b.ctx).WithField("machine", name).Warn("The driver does not list a machine whose agent answers; its pod is kept")
		}
		m.warned = true
	}
	return nil
}

// setFinalLocked records how the pod of a machine has ended. b.mu is held.
func (b *backend) setFinalLocked(ctx context.Context, m *member, final podgroup.Unit, lost bool) bool {
	next := *m.record
	next.Final, next.Lost = &final, lost
	if err := b.records.save(&next); err != nil {
		log.G(ctx).WithField("machine", m.machine.Name).WithError(err).Warn("Cannot record how a pod has ended; trying again")
		return false
	}
	m.record = &next
	b.wakeLocked()
	return true
}

// endFinished ends the machines of pods that have ended, some time ago or with their machine, and
// those whose agents have been out of reach for long. The pods of these fail once their machine is
// gone.
func (b *backend) endFinished() {
	var over, away, deaf []*member
	answering := 0
	b.mu.Lock()
	for _, m := range b.members {
		present := m.missing.IsZero() && m.machine.State != Ended
		switch r := m.record; {
		case r != nil && isReserve(m.machine) && !m.ending && present:
			if m.greeted {
				answering++
			} else if b.isDeafLocked(m) {
				deaf = append(deaf, m)
			}
		case r == nil || !r.Given || m.ending || !present || m.isReplaced() && r.Final == nil:
		case r.Final != nil && (r.Lost || time.Since(r.Final.Ended) > b.cfg.KeepFinished.Duration):
			over = append(over, m)
		case r.Final != nil || m.link == nil:
		case m.link.answers():
			answering++
		case m.link.silentFor() == 0: // a node that has just begun has asked none of them yet
		default:
			away = append(away, m)
		}
	}
	b.guardLocked(away, deaf, answering)
	for _, m := range away {
		if m.link.silentFor() > b.cfg.UnreachableTimeout.Duration {
			m.silent = true
			over = append(over, m)
		}
	}
	b.mu.Unlock()
	for _, m := range over {
		b.inBackground(m, func(ctx context.Context) { _ = b.delete(ctx, b.seen(m)) }) // it is tried again
	}
}

// isDeafLocked reports whether a machine in reserve counts as one that is out of reach. One whose agent
// has its certificate, and does not listen yet, does not. b.mu is held.
func (b *backend) isDeafLocked(m *member) bool {
	return !m.deaf.IsZero() && (b.guards || time.Since(m.deaf) > b.cfg.UnreachableTimeout.Duration/2)
}

// guardLocked keeps machines from being deleted while most agents are out of reach, those of machines
// that have a pod (away) or are in reserve (deaf). Those that still are when most answer again get the
// whole unreachableTimeout once more. b.mu is held.
func (b *backend) guardLocked(away, deaf []*member, answering int) {
	unreachable := len(away) + len(deaf)
	guards := unreachable >= massSilence && unreachable > answering
	if guards != b.guards {
		logger := log.G(b.ctx).WithFields(log.Fields{"unreachable": unreachable, "reachable": answering})
		if guards {
			logger.Error("Most machines cannot be reached, which rather is the fault of the network of this node: none of them is deleted for that")
		} else {
			logger.Info("Most machines can be reached again")
		}
	}
	b.guards = guards
	if guards {
		for _, m := range away {
			m.link.excuse()
		}
		for _, m := range deaf {
			m.deaf = time.Now()
		}
	}
}

// endOrphans ends the machines that were given no pod, and whose pod is not there. Of those that
// were given it the pod controller decides, which deletes pods that the API does not have. The
// pods have to be known, and the API server has to agree.
func (b *backend) endOrphans() {
	if b.init.PodsSynced != nil && !b.init.PodsSynced() {
		return
	}
	var orphans []*member
	b.mu.Lock()
	given := map[types.UID]bool{}
	for _, m := range b.members {
		given[uidOf(m.machine)] = given[uidOf(m.machine)] || m.record != nil && m.record.Given && !m.isReplaced()
	}
	for _, m := range b.members {
		// One that takes the place of another is ended with that.
		if m.record != nil && m.record.Given || isReserve(m.machine) || m.mayHavePod() && b.pastLocked(uidOf(m.machine)) != nil {
			continue
		}
		if b.hasPod(m.machine) && !given[uidOf(m.machine)] {
			m.orphan = 0
			continue
		}
		// One that comes back after it was replaced may still run the pod, which is in another machine.
		back := given[uidOf(m.machine)] && m.machine.State != Ended
		if m.orphan++; m.orphan >= orphanAfter || back {
			orphans = append(orphans, m)
		}
	}
	b.mu.Unlock()
	for _, m := range orphans {
		b.inBackground(m, func(ctx context.Context) { b.endOrphan(ctx, m, given[uidOf(b.seen(m))]) })
	}
}

func (b *backend) endOrphan(ctx context.Context, m *member, superfluous bool) {
	machine := b.seen(m)
	done, err := b.pods.Take(ctx, string(uidOf(machine))) // its pod may be created right now
	if err != nil {
		return
	}
	defer done()
	b.mu.Lock()
	was := m.record != nil && m.record.Given || b.members[machine.Name] != m
	b.mu.Unlock()
	if was || !superfluous && !b.confirmOrphan(ctx, machine) {
		return
	}
	b.mu.Lock()
	sent := m.mayHavePod()
	kept := m.isAssigned() // until it is gone: without its record it may have any pod
	b.mu.Unlock()
	switch {
	case sent && !superfluous:
		_ = b.Delete(ctx, &podgroup.Unit{ID: machine.Name}, corev1.DefaultTerminationGracePeriodSeconds*time.Second)
		return
	case kept:
		b.gone(ctx, m)
		return
	}
	if b.delete(ctx, machine) == nil && !b.isElsewhere(ctx, m) {
		if err := b.forget(machine.Name); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot remove the record of a machine")
		}
	}
}

// hasPod reports whether the pod of a machine is known and has not ended.
func (b *backend) hasPod(m Machine) bool {
	owner := ownerOf(m)
	pod, err := b.init.Pods.Pods(owner.Namespace).Get(owner.Name)
	return err == nil && pod.UID == owner.UID && !isOver(pod)
}

// wants reports whether a pod is still to run.
func (b *backend) wants(owner podgroup.Owner) bool {
	pod, err := b.init.Pods.Pods(owner.Namespace).Get(owner.Name)
	return err == nil && pod.UID == owner.UID && pod.DeletionTimestamp == nil && !isOver(pod)
}

// isDeleted reports whether a pod was deleted, or is being so.
func (b *backend) isDeleted(owner podgroup.Owner) bool {
	if b.init.PodsSynced != nil && !b.init.PodsSynced() {
		return false
	}
	pod, err := b.init.Pods.Pods(owner.Namespace).Get(owner.Name)
	return err != nil || pod.UID != owner.UID || pod.DeletionTimestamp != nil
}

// confirmOrphan asks the API server whether the pod of a machine is not there. A list, since a
// node may not be allowed to get a pod that is not its own.
func (b *backend) confirmOrphan(ctx context.Context, m Machine) bool {
	owner := ownerOf(m)
	list, err := b.init.Client.CoreV1().Pods(owner.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", b.node).String()})
	if err != nil {
		log.G(ctx).WithField("machine", m.Name).WithError(err).Warn("A machine seems to have no pod; the API server does not confirm that")
		return false
	}
	for i := range list.Items {
		if list.Items[i].UID == owner.UID && !isOver(&list.Items[i]) {
			return false
		}
	}
	return true
}
