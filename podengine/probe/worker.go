package probe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// container is what the Manager knows of an attempt of a container. It is
// guarded by the Manager's mutex.
type container struct {
	pod       *pod
	spec      *corev1.Container
	startedAt time.Time
	runs      bool
	result    Result
	workers   []*worker
}

func newContainer(p *pod, spec *corev1.Container, now Container) *container {
	c := &container{pod: p, spec: spec, startedAt: now.StartedAt, result: begin(spec, now)}
	for _, kind := range []Kind{Startup, Liveness, Readiness} {
		if probe := kind.of(spec); probe != nil {
			c.workers = append(c.workers, &worker{kind: kind, probe: probe})
		}
	}
	return c
}

// update takes over the pod's newest object. Its probes are those of before,
// which do not change in the life of a container.
func (c *container) update(spec *corev1.Container, runs bool) {
	c.spec, c.runs = spec, runs
	for _, w := range c.workers {
		if probe := w.kind.of(spec); probe != nil {
			w.probe = probe
		}
	}
}

func (c *container) stop() {
	c.runs = false
	for _, w := range c.workers {
		w.stop()
	}
}

// worker makes one probe of a container, again and again. It is either idle, or
// waits for its timer, or makes the probe.
type worker struct {
	kind  Kind
	probe *corev1.Probe
	row   counter

	due    time.Time
	timer  *time.Timer        // while it waits
	cancel context.CancelFunc // while it makes the probe
	epoch  int                // counts the stops, by which a timer or a probe knows that it is late
}

// stop makes the worker idle. The outcome of a probe that is being made is
// thrown away.
func (w *worker) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.cancel != nil {
		w.cancel()
	}
	w.timer, w.cancel = nil, nil
	w.due = time.Time{}
	w.epoch++
}

// schedule starts and stops the probes of a container as its state asks for.
func (m *Manager) schedule(c *container) {
	for _, w := range c.workers {
		switch wanted := c.runs && c.result.wants(w.kind, c.pod.Terminating); {
		case !wanted:
			w.stop()
		case w.timer == nil && w.cancel == nil:
			m.wait(c, w)
		}
	}
}

// wait sets the timer for the next probe.
func (m *Manager) wait(c *container, w *worker) {
	w.due = m.next(c, w)
	epoch := w.epoch
	w.timer = time.AfterFunc(time.Until(w.due), func() { m.fire(c, w, epoch) })
}

// next returns when to probe next: first when initialDelaySeconds have passed,
// then each period, at once if the last probe took longer than that.
//
// The probes of containers that ran before this process did are spread over
// their first period, so that they do not come all at once when it starts.
func (m *Manager) next(c *container, w *worker) time.Time {
	now := time.Now()
	period := seconds(positive(w.probe.PeriodSeconds, 10))
	if !w.due.IsZero() {
		return now.Add(max(0, w.due.Add(period).Sub(now)))
	}
	// By a runtime's clock that is ahead of ours, nothing starts in the future.
	// Only the difference counts, so that a change of the wall clock does not
	// move what follows.
	delay := max(0, seconds(w.probe.InitialDelaySeconds)-max(0, now.Sub(c.startedAt)))
	if c.startedAt.Before(m.started) && now.Sub(m.started) < period {
		delay += m.jitter(period)
	}
	return now.Add(delay)
}

// fire makes a probe whose time has come.
func (m *Manager) fire(c *container, w *worker, epoch int) {
	m.mu.Lock()
	if w.epoch != epoch {
		m.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	w.timer, w.cancel = nil, cancel
	target := Target{Pod: c.pod.Pod.Pod, Container: c.spec, ContainerID: c.result.ContainerID, IP: c.pod.IP}
	probe := w.probe
	m.running.Add(1) // before Close waits, since the epoch is that of a worker which was not stopped
	defer m.running.Done()
	m.mu.Unlock()

	begin := time.Now()
	outcome, output, err := m.opts.Runner.Probe(ctx, target, probe)
	took := time.Since(begin)

	m.mu.Lock()
	if w.epoch != epoch {
		m.mu.Unlock()
		return
	}
	w.cancel = nil
	changed := c.count(w, outcome, output, err)
	m.schedule(c)
	m.mu.Unlock()
	m.recordEvent(target, w.kind, outcome, output, err)
	if m.opts.Observe != nil {
		m.opts.Observe(target.Pod, target.Container.Name, w.kind, outcome, took)
	}
	if changed && m.opts.Notify != nil {
		m.opts.Notify(target.Pod.UID)
	}
}

// count adds an outcome to the container's result and reports whether that has
// changed. A probe that could not be made counts neither way.
func (c *container) count(w *worker, outcome Outcome, output string, err error) bool {
	if err != nil {
		return false
	}
	success := outcome == Success || outcome == Warning
	if !w.row.add(success, w.probe) {
		return false
	}
	before := c.result
	c.result = before.with(w.kind, success, output, c.spec)
	after := c.result
	after.Message = before.Message // other words are no change
	return after != before
}

// recordEvent records an event of an outcome that a person should know.
func (m *Manager) recordEvent(target Target, kind Kind, outcome Outcome, output string, err error) {
	reason, message := ReasonUnhealthy, ""
	switch {
	case err != nil:
		message = fmt.Sprintf("%s probe errored and resulted in %s state: %v", kind, Unknown, err)
	case outcome == Warning:
		reason, message = ReasonProbeWarning, fmt.Sprintf("%s probe warning: %s", kind, output)
	case outcome != Success:
		message = fmt.Sprintf("%s probe failed: %s", kind, output)
	default:
		return
	}
	if m.opts.Event != nil {
		m.opts.Event(target.Pod, target.Container.Name, corev1.EventTypeWarning, reason, message)
	}
}
