package mock

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// defaultGracePeriod is how long a pod has to stop unless its spec has another.
const defaultGracePeriod = 30 * time.Second

// CreatePod implements node.PodLifecycleHandler. To create a pod that is held already, or one
// of the same name, is an error of class Conflict.
func (p *Provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	if pod.Namespace == "" || pod.Name == "" {
		return errdefs.InvalidInput("a pod needs a namespace and a name")
	}
	s, err := scriptOf(p.cfg, pod)
	if err != nil {
		return err
	}
	k, err := keep(pod)
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	now := time.Now()
	if other := p.pods[key(pod.Namespace, pod.Name)]; other != nil {
		err := errdefs.AsConflict(fmt.Errorf("pod %s/%s with UID %q is held already, and cannot be created with UID %q",
			pod.Namespace, pod.Name, other.pod.uid, pod.UID))
		p.journal.appendLater(record{Time: now, Event: eventRefused, Pod: pod, Message: err.Error()})
		return err
	}
	if err := p.fail(pod, s); err != nil {
		p.journal.appendLater(record{Time: now, Event: eventRefused, Pod: pod, Message: err.Error()})
		return err
	}
	ip := p.cfg.HostIP
	if !pod.Spec.HostNetwork {
		if ip, err = p.addresses.allocate(); err != nil {
			return err
		}
	}
	if err := p.journal.append(record{Time: now, Event: eventCreate, Pod: pod, IP: ip}); err != nil {
		p.addresses.release(ip)
		return err
	}
	delete(p.failed, pod.UID)
	p.advance(p.hold(k, &pod.Status, s, ip, now), now, true)
	return nil
}

// hold begins to hold a pod, which has a status in the API. p.mu is held.
func (p *Provider) hold(pod kept, inAPI *corev1.PodStatus, s script, ip string, now time.Time) *held {
	h := &held{
		pod: pod, script: s, ip: ip, qos: inAPI.QOSClass,
		created: now, stage: stagePending, conditions: lastConditions(inAPI.Conditions),
	}
	p.pods[key(pod.namespace, pod.name)] = h
	return h
}

// fail returns the error that the pod's annotations ask for. p.mu is held.
func (p *Provider) fail(pod *corev1.Pod, s script) error {
	if s.failCreate == nil {
		return nil
	}
	if s.failTimes > 0 {
		if p.failed[pod.UID] >= s.failTimes {
			return nil
		}
		p.failed[pod.UID]++
	}
	return s.failCreate
}

// UpdatePod implements node.PodLifecycleHandler.
func (p *Provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	s, err := scriptOf(p.cfg, pod)
	if err != nil {
		return err
	}
	k, err := keep(pod)
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	h, err := p.find(pod)
	if err != nil {
		return err
	}
	now := time.Now()
	if err := p.journal.append(record{Time: now, Event: eventUpdate, Pod: pod}); err != nil {
		return err
	}
	h.update(k, s)
	p.advance(h, now, true)
	return nil
}

// update takes over a new form of the pod, which may lack its UID.
func (h *held) update(pod kept, s script) {
	pod.uid = h.pod.uid
	h.pod, h.script = pod, s
}

// DeletePod implements node.PodLifecycleHandler. A pod takes its stop delay to
// stop, and exits with 0, unless its grace period is over before: then it is
// killed, and exits with 137. Either way a terminal status is notified, and the
// pod forgotten. Further calls can only bring the end forward.
func (p *Provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	h, err := p.find(pod)
	if err != nil {
		delete(p.failed, pod.UID)
		return err
	}
	now := time.Now()
	stopAt, killed := now.Add(h.script.stopDelay), false
	if end := now.Add(gracePeriod(pod)); end.Before(stopAt) || !end.After(now) {
		stopAt, killed = end, true
	}
	if !h.stopAt.IsZero() && !stopAt.Before(h.stopAt) {
		return nil
	}
	if err := p.journal.append(record{Time: now, Event: eventDelete, held: h, StopAt: stopAt, Killed: killed}); err != nil {
		return err
	}
	h.stopAt, h.killed = stopAt, killed
	p.advance(h, now, true)
	return nil
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return defaultGracePeriod
}

// find returns the held pod that pod is. p.mu is held.
func (p *Provider) find(pod *corev1.Pod) (*held, error) {
	h, err := p.get(pod.Namespace, pod.Name)
	if err == nil && pod.UID != "" && h.pod.uid != pod.UID {
		return nil, errdefs.NotFoundf("pod %s/%s with UID %q does not exist, but one with UID %q", pod.Namespace, pod.Name, pod.UID, h.pod.uid)
	}
	return h, err
}

// get returns a held pod by its name. p.mu is held.
func (p *Provider) get(namespace, name string) (*held, error) {
	if h := p.pods[key(namespace, name)]; h != nil {
		return h, nil
	}
	return nil, errdefs.NotFoundf("pod %q does not exist", namespace+"/"+name)
}

// advance lets happen to h what is due by now, notifies of it, and sets the timer
// for what is to come. p.mu is held.
func (p *Provider) advance(h *held, now time.Time, changed bool) {
	if h.gone {
		return
	}
	ended := h.stage == stageEnded
	changed = p.catchUp(h, now) || changed
	_, at, ok := h.next()
	p.schedule(h, at.Sub(now), ok)
	changed = h.startEphemeral(now) || changed
	if !changed {
		return
	}
	h.recordConditions(now)
	p.notify(h)
	if h.stage == stageEnded {
		if !ended {
			p.journal.appendLater(record{
				Time: now, Event: eventTerminal, held: h,
				Phase: h.phase(), Started: h.current.started, Ready: h.current.ready, Ended: h.current.ended, ExitCode: h.current.code,
			})
		}
		if !h.stopAt.IsZero() {
			p.forget(h)
			p.journal.appendLater(record{Time: now, Event: eventForget, held: h})
		}
	}
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// startEphemeral starts the ephemeral containers that are new, if the pod runs, and reports
// whether there are any. p.mu is held.
func (h *held) startEphemeral(now time.Time) (started bool) {
	if !h.current.running() {
		return false
	}
	for _, c := range h.pod.of(kindEphemeral) {
		if !h.ephemeral[c.name].IsZero() {
			continue
		}
		if h.ephemeral == nil {
			h.ephemeral = map[string]time.Time{}
		}
		h.ephemeral[c.name], started = now, true
	}
	return started
}

// catchUp lets happen to h what is due by now, and reports whether anything was.
// p.mu is held.
func (p *Provider) catchUp(h *held, now time.Time) (changed bool) {
	for {
		what, at, ok := h.next()
		if !ok || at.After(now) {
			return changed
		}
		before := h.current
		h.apply(what, at)
		changed = true
		if before.running() && !h.current.running() {
			p.pastCPU += h.cpu(h.current.ended.Sub(before.started))
		}
	}
}

// schedule sets the pod's timer, or stops it. p.mu is held.
func (p *Provider) schedule(h *held, after time.Duration, ok bool) {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	if !ok || p.closed {
		return
	}
	h.timer = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed {
			p.advance(h, time.Now(), false)
		}
	})
}

// forget stops holding the pod. p.mu is held.
func (p *Provider) forget(h *held) {
	p.schedule(h, 0, false)
	delete(p.pods, key(h.pod.namespace, h.pod.name))
	p.addresses.release(h.ip)
	h.gone = true
}
