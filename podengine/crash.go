package podengine

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// crash is the crash-loop back-off of a container.
type crash struct {
	counted string        // the attempt whose end was counted last, by ID
	form    string        // the container's image and resources then
	ended   time.Time     // when that attempt did
	delay   time.Duration // of the next restart
	ahead   string        // the attempt that ended in the future, by ID: a clock was set back
	seen    time.Time     // when that was seen first
	warned  time.Time     // of the last event that it holds up the next restart
}

// downUntil is until when a container stays down after the end of an attempt, and how long
// that is from its end, or from when its end was first seen, if that was before.
func (w *worker) downUntil(c *corev1.Container, last *container, now time.Time) (time.Time, time.Duration) {
	delay := w.crashDelay(c, last)
	if delay == 0 {
		return time.Time{}, 0
	}
	known := w.crashes[c.Name]
	if known.ahead != last.id && last.finished.After(now) {
		known.ahead, known.seen = last.id, now
		w.crashes[c.Name] = known
	}
	if known.ahead == last.id {
		return known.seen.Add(delay), delay
	}
	return last.finished.Add(delay), delay
}

// crashForm is what of a container begins its back-off afresh when it changes, as with a
// kubelet: another image, or more memory, may be the remedy.
func crashForm(c *corev1.Container) string { return c.Image + " " + resourcesOf(c) }

// crashDelay is how long a container stays down after the end of an attempt:
// not at all the first time, and no longer once it was to be started again.
func (w *worker) crashDelay(c *corev1.Container, last *container) time.Duration {
	if last == nil || last.phase != exited {
		return 0
	}
	before := w.crashes[c.Name]
	if before.counted == last.id || before.form != crashForm(c) || last.wasHealthy() {
		return 0
	}
	if w.stoppedToStart(last) && last.finished.Sub(before.ended) >= before.delay {
		return 0
	}
	return before.delay
}

// stoppedToStart reports whether an attempt was stopped to be started again, as far as this process knows. A kubelet does both
// in one step, in which it has not seen this end: it is the one before that counts.
func (w *worker) stoppedToStart(last *container) bool {
	w.mu.Lock()
	done := w.endings[last.id]
	w.mu.Unlock()
	return done != nil && done.again || w.startsAgain(last)
}

// recordHeld records an event on each container that the back-off keeps from its start each
// time that it does so, as a kubelet does, but none soon after another: a worker may wake often.
func (w *worker) recordHeld(pod *corev1.Pod, held []string, now time.Time) {
	for _, name := range held {
		known := w.crashes[name]
		if now.Sub(known.warned) < lastRetry {
			continue
		}
		known.warned = now
		w.crashes[name] = known
		w.engine.containerEvent(pod, name, corev1.EventTypeWarning, eventBackOff,
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, pod.Name, pod.Namespace, pod.UID))
	}
}

// wasHealthy reports whether an attempt has run for so long that its end is not
// one more of a row.
func (c *container) wasHealthy() bool {
	return !c.started.IsZero() && c.finished.Sub(c.started) >= healthyAfter
}

// crashed counts that a container ended, and is started again: how long it stays
// down the next time. The end of one that was restarted with all others does not count,
// but for that of the one that asked for it.
func (w *worker) crashed(c *corev1.Container, last *container) {
	before := w.crashes[last.name]
	if last.phase != exited || before.counted == last.id {
		return
	}
	if w.isSuperseded(last) && !podspec.RestartsAll(c, last.exitCode) {
		return
	}
	form := crashForm(c)
	if last.wasHealthy() || before.form != form {
		before.delay = 0
	}
	delay := periodic.Doubled(before.delay, firstCrashDelay, lastCrashDelay)
	if last.attempt == 0 && w.stoppedToStart(last) {
		delay = 0 // there is no end before
	}
	w.crashes[last.name] = crash{counted: last.id, ended: last.finished, form: form, delay: delay}
}

// collect removes all but the newest attempt of a container, whose log and
// end people may still ask for.
func (w *worker) collect(ctx context.Context, pod *corev1.Pod, attempts []*container) {
	for _, old := range attempts[1:] {
		if old.mayRun() {
			continue
		}
		if old.recalled != nil {
			w.forget(pod, old)
			continue
		}
		if err := w.engine.removeContainer(ctx, old.id); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot remove a container that has ended")
			continue
		}
		w.forget(pod, old)
	}
}

// forget drops what is kept of an attempt that has been removed.
func (w *worker) forget(pod *corev1.Pod, old *container) {
	delete(w.messages, old.id)
	delete(w.applied, old.id)
	delete(w.launches, old.id)
	w.mu.Lock()
	delete(w.endings, old.id)
	w.mu.Unlock()
	path := w.engine.logFile(pod, old.name, old.attempt)
	removeLogs(path)
	w.engine.unlinkLogs(pod, path)
	_ = os.Remove(w.engine.terminationLog(pod, old.name, old.attempt)) // goes with the pod else
}
