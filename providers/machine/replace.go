package machine

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// A pod whose machine is lost fails, or gets another machine. The record of the lost one then
// stays until the other has the pod: it is what the pod's status is made of, and from which a
// node that begins again goes on.

// replaced is how a machine was lost for which another is made.
type replaced struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// Shown is what the pod's status is made of until another machine has the pod.
	Shown podgroup.Unit `json:"shown"`
	// Past is what the pod was until then.
	Past past `json:"past"`
}

// past is what a pod was in earlier machines.
type past struct {
	Created    time.Time                `json:"created"`
	Containers map[string]pastContainer `json:"containers,omitempty"`
}

// pastContainer is how often a container was started in earlier machines and, if it ran, how that
// ended.
type pastContainer struct {
	Starts int32        `json:"starts"`
	Last   podgroup.Run `json:"last"`
	// Done is an init container that has completed, of which the API accepts no other state than
	// that it has ended, although it runs again.
	Done bool `json:"done,omitempty"`
}

// createTimeout is how long the creation of a pod may take before it is begun again.
const createTimeout = 8 * time.Minute

// podToReplace returns the pod for which another machine is made if its machine is lost, nil if none
// is. It is not known before the pods are.
func (b *backend) podToReplace(owner podgroup.Owner) (pod *corev1.Pod, known bool) {
	if !b.cfg.ReplaceLost {
		return nil, true
	}
	if b.init.PodsSynced != nil && !b.init.PodsSynced() {
		return nil, false
	}
	pod, err := b.init.Pods.Pods(owner.Namespace).Get(owner.Name)
	if err != nil || !b.wants(owner) {
		return nil, true
	}
	return pod, true
}

// startsAgain reports whether the containers of a pod may be started in another machine. What runs
// once at the most, and what has ended for good, may not; init containers that have completed may,
// since the other machine is to be prepared, too.
func startsAgain(pod *corev1.Pod, containers []podgroup.Container) bool {
	if runsOnce(pod) {
		return false
	}
	unit := podgroup.Unit{Containers: containers}
	for kind, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			c, seen := &all[i], unit.Container(all[i].Name)
			completed := kind == 0 && seen != nil && seen.Now.ExitCode == 0
			if seen != nil && seen.Now.State == podgroup.Terminated && !completed && !podspec.ShouldRestart(pod, c, seen.Now.ExitCode) {
				return false
			}
		}
	}
	return true
}

// runsOnce reports whether a pod, or one of its containers, runs once at the most.
func runsOnce(pod *corev1.Pod) bool {
	once := func(c corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || slices.ContainsFunc(pod.Spec.InitContainers, once) || slices.ContainsFunc(pod.Spec.Containers, once)
}

// concludeLocked records that a pod has lost its machine: it fails, or gets another one. lost
// reports that the machine itself has ended. The result is false if it is to be tried again. b.mu
// is held.
func (b *backend) concludeLocked(ctx context.Context, m *member, failure *podspec.Failure, lost bool) bool {
	owner := ownerOf(m.machine)
	pod, known := b.podToReplace(owner)
	if !known {
		return false
	}
	unit := b.unitLocked(m)
	shown := unit.Containers
	if pod != nil && (len(shown) == 0 || !m.record.TakenAt.IsZero()) { // an earlier process has seen it last, or the node has ended them
		shown = containersOf(pod)
	}
	if pod == nil || !startsAgain(pod, shown) {
		unit.Phase, unit.Failure, unit.Ended, unit.Unknown = podgroup.Failed, failure, time.Now(), false
		return b.setFinalLocked(ctx, m, unit, lost)
	}
	next := *m.record
	next.Replaced, next.Lost = newReplaced(m.record, unit, pod, failure), true
	if err := b.records.save(&next); err != nil {
		log.G(ctx).WithField("machine", m.machine.Name).WithError(err).Warn("Cannot record that a machine is lost; trying again")
		return false
	}
	m.record = &next
	if m.link != nil {
		m.link.stop()
	}
	b.wakeLocked()
	return true
}

// newReplaced returns what is recorded of a machine for which another is made: until then all
// containers wait, but for init containers that are done.
func newReplaced(r *record, unit podgroup.Unit, pod *corev1.Pod, failure *podspec.Failure) *replaced {
	now := time.Now()
	// The unit of the other machine counts as the older one: see swap.
	out := &replaced{At: now, Reason: failure.Reason, Past: past{Created: unit.Created.Add(-time.Nanosecond), Containers: map[string]pastContainer{}}}
	containers := unit.Containers
	if len(containers) == 0 { // an earlier process has seen it last
		containers = containersOf(pod)
	}
	inits := map[string]*corev1.Container{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; !podspec.IsSidecar(c) {
			inits[c.Name] = c
		}
	}
	unit.Phase, unit.Failure, unit.Unknown, unit.IPs, unit.Ended, unit.Containers = podgroup.Running, nil, false, nil, time.Time{}, nil
	for _, c := range containers {
		was := r.Past.of(c.Name)
		ran := c.Now.State != podgroup.Waiting || c.Last.State == podgroup.Terminated && !c.Last.Finished.Equal(was.Last.Finished)
		last, init := c.Last, inits[c.Name]
		done := init != nil && c.Now.State == podgroup.Terminated && c.Now.ExitCode == 0
		switch c.Now.State {
		case podgroup.Executing:
			last = podgroup.Run{
				State: podgroup.Terminated, Reason: podspec.ReasonContainerStatusUnknown, Message: failure.Message, ExitCode: podspec.ExitUnknown,
				Started: c.Now.Started, Finished: now,
			}
		case podgroup.Terminated:
			last = c.Now
		}
		starts := was.Starts
		if ran {
			starts = c.Restarts + 1
		}
		out.Past.Containers[c.Name] = pastContainer{
			Starts: starts, Last: last, Done: done && (pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || init.RestartPolicy != nil),
		}
		if !done {
			c.Last, c.Now = last, podgroup.Run{Reason: failure.Reason, Message: failure.Message}
			c.Ready, c.Started = ptr.To(false), ptr.To(false)
		}
		unit.Containers = append(unit.Containers, c)
	}
	out.Shown = unit
	return out
}

// containersOf returns the containers of a pod by its status.
func containersOf(pod *corev1.Pod) (containers []podgroup.Container) {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range all {
			containers = append(containers, containerOf(&all[i]))
		}
	}
	return containers
}

// of is what a container was in earlier machines.
func (p *past) of(name string) pastContainer {
	if p == nil {
		return pastContainer{}
	}
	return p.Containers[name]
}

// addTo adds what a container was in earlier machines.
func (p *past) addTo(c *podgroup.Container) {
	was := p.of(c.Name)
	c.Restarts += was.Starts
	if c.Last.State != podgroup.Terminated {
		c.Last = was.Last
	}
	if was.Done && c.Now.State != podgroup.Terminated {
		c.Now = c.Last
	}
}

// isReplaced reports whether another machine is made in place of this one. b.mu is held.
func (m *member) isReplaced() bool { return m.record != nil && m.record.Replaced != nil }

// hasUnitLocked reports whether a machine is what podgroup is shown of its pod. b.mu is held.
func (b *backend) hasUnitLocked(m *member) bool {
	if m.mayHavePod() { // that of the machine that was lost is shown in its place
		return b.pastLocked(uidOf(m.machine)) == nil && b.isDeleted(ownerOf(m.machine))
	}
	return m.record != nil && m.record.Given && (!m.isReplaced() || b.successorLocked(m) == nil)
}

// mayHavePod reports whether a machine was sent its pod, and it is not known whether it has it. b.mu is
// held.
func (m *member) mayHavePod() bool { return m.record != nil && m.record.Sent && !m.record.Given }

// successorLocked returns the machine that has the pod in place of one that was lost; nil if there
// is none yet. b.mu is held.
func (b *backend) successorLocked(m *member) *member {
	for _, other := range b.members {
		if other.record != nil && other.record.Given && !other.isReplaced() && uidOf(other.machine) == uidOf(m.machine) {
			return other
		}
	}
	return nil
}

// pastLocked returns what a pod was in machines that were lost; nil if there were none. b.mu is
// held.
func (b *backend) pastLocked(uid types.UID) *past {
	for _, m := range b.members {
		if m.isReplaced() && uidOf(m.machine) == uid {
			return &m.record.Replaced.Past
		}
	}
	return nil
}

// replaceLost goes on with machines that take the place of others.
func (b *backend) replaceLost() {
	var lost []*member
	b.mu.Lock()
	for _, m := range b.members {
		// One that is back is ended at once.
		if m.isReplaced() && m.record.Final == nil && !m.ending && (m.isThere() || !time.Now().Before(m.again)) {
			lost = append(lost, m)
		}
	}
	b.mu.Unlock()
	for _, m := range lost {
		b.inBackground(m, func(ctx context.Context) { b.replace(ctx, m) })
	}
}

// replace makes another machine in place of one that was lost, and gives it the pod.
func (b *backend) replace(ctx context.Context, m *member) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	next, ending := b.successorLocked(m), m.ending
	m.cancel = cancel // by the deletion of the pod
	b.mu.Unlock()
	owner := ownerOf(b.seen(m))
	if next != nil { // an earlier process has come this far
		b.swap(ctx, m, next)
		return
	}
	pod, err := b.init.Pods.Pods(owner.Namespace).Get(owner.Name)
	if ending || err != nil || !b.wants(owner) {
		return // the pod controller deletes it
	}
	r, err := b.requestAgain(ctx, pod)
	if err == nil {
		b.mu.Lock()
		r.Name, _, _ = cutGeneration(m.slot()) // of which the next one is made
		b.mu.Unlock()
		late, stop := context.WithTimeout(ctx, createTimeout)
		_, err = b.Create(late, r)
		stop()
	}
	b.mu.Lock()
	next, ending = b.successorLocked(m), m.ending
	grace := m.grace
	if next != nil {
		m.ending = false // which next is, from now on
	}
	b.mu.Unlock()
	switch {
	case next != nil:
		b.swap(b.ctx, m, next)
		if ending { // the deletion came while the pod was being sent
			b.deleteNext(b.ctx, next, grace)
		}
		return
	case ctx.Err() != nil:
		return
	case errdefs.IsPermanent(err) || errors.Is(err, errTooMany):
		b.failReplaced(ctx, m, err)
		return
	}
	log.G(ctx).WithFields(log.Fields{"machine": b.seen(m).Name, "pod": owner.Namespace + "/" + owner.Name}).WithError(err).Warn("No other machine has the pod of one that was lost yet")
	if b.init.Events != nil {
		b.init.Events.Eventf(pod, corev1.EventTypeWarning, "MachineNotReplaced", "No other machine has the pod yet: %v", err)
	}
	if delay, ok := errdefs.RetryAfter(err); ok {
		b.mu.Lock()
		m.again = time.Now().Add(delay)
		b.mu.Unlock()
	}
}

// swap shows a pod in the machine that has it in place of the one that was lost, whose record goes.
func (b *backend) swap(ctx context.Context, m, next *member) {
	if err := b.forget(b.seen(m).Name); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot remove the record of a machine that was lost; trying again")
		return
	}
	b.publish(next)
	b.publishGone(m) // of two units the younger one: it is no end of the pod, not even of one that is being deleted
}

// failReplaced fails a pod that no other machine can be made for.
func (b *backend) failReplaced(ctx context.Context, m *member, err error) {
	b.mu.Lock()
	final := m.record.Replaced.Shown
	final.Phase, final.Ended = podgroup.Failed, time.Now()
	final.Failure = &podspec.Failure{Reason: m.record.Replaced.Reason, Message: "The machine was lost, and there is no other one: " + clip(err.Error(), maxText), Disrupted: true}
	b.setFinalLocked(ctx, m, final, true)
	b.mu.Unlock()
	b.publish(m)
}

// endReplaced ends what goes on for a pod that was deleted while another machine was being made.
func (b *backend) endReplaced(ctx context.Context, m *member) {
	done, err := b.pods.Take(ctx, string(uidOf(b.seen(m)))) // its creation ends
	if err != nil {
		return
	}
	done()
	b.mu.Lock()
	next := b.successorLocked(m)
	var sent *member
	for _, other := range b.members {
		if next == nil && other.mayHavePod() && uidOf(other.machine) == uidOf(m.machine) {
			sent = other
			sent.record, m.ending = b.givenLocked(sent), false
		}
	}
	grace := m.grace
	b.mu.Unlock()
	switch {
	case sent != nil:
		b.swap(ctx, m, sent)
		b.deleteNext(ctx, sent, grace)
	case next == nil: // else replace deletes it
		b.endNow(ctx, m)
	}
}

// deleteNext deletes the pod of a machine that took the place of another one meanwhile.
func (b *backend) deleteNext(ctx context.Context, next *member, grace time.Duration) {
	_ = b.Delete(ctx, &podgroup.Unit{ID: b.seen(next).Name}, grace)
	b.publish(next)
}

// SetRequest implements podgroup.Replacer.
func (b *backend) SetRequest(request func(ctx context.Context, pod *corev1.Pod) (*podgroup.Request, error)) {
	b.requestAgain = request
}
