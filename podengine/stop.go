package podengine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// leastGrace is what a container is given to end when it is asked to for the first
// time, also if its preStop hook, or the containers that end before it, have used up
// the grace period: a kubelet's minimum.
const leastGrace = 2 * time.Second

// ending is what was done already to end a container, and is not done again when
// the rest has failed or has to be faster.
type ending struct {
	announced bool         // by an event
	requested bool         // the runtime was asked to stop it
	unknown   bool         // its state was unknown then
	stopped   bool         // it has done so
	again     bool         // to start the container again
	hook      *preStopHook // nil: none was started
	// grace is the last grace period that it was to have while the pod goes on; nil: none.
	grace *time.Duration
	// due is set if it was asked so early that the container is killed when the grace
	// period is over, rather than given leastGrace.
	due atomic.Bool
}

func (w *worker) endingOf(id string) *ending {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endings[id] == nil {
		w.endings[id] = &ending{}
	}
	return w.endings[id]
}

// killContainer stops a container while the pod goes on.
func (w *worker) killContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, a action) error {
	for _, inc := range seen.containers[a.container] {
		if inc.id == a.id {
			_, c := findContainer(pod, a.container)
			grace := w.graceToKill(pod, c, a)
			if a.again {
				w.endingOf(inc.id).again = true
				if err := w.recordRestarts(ctx, pod, inc); err != nil {
					return err
				}
			}
			return w.stopContainer(ctx, pod, seen, c, inc, time.Now().Add(grace), a.why, nil)
		}
	}
	return nil
}

// stopContainer runs the preStop hook of a container, waits for its turn if there
// is an order, and stops it. What runs still at the given time is killed. Of a
// container that is not in the spec, c is nil.
func (w *worker) stopContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, by time.Time, why string, before []*turn) error {
	done := w.endingOf(inc.id)
	if !done.announced {
		done.announced = true
		w.engine.containerEvent(pod, inc.name, corev1.EventTypeNormal, eventKilling, why)
	}
	if done.hook == nil && c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && inc.phase == running && time.Until(by) > 0 {
		done.hook = w.startPreStop(ctx, pod, seen, c, inc, by)
	}
	if err := done.hook.wait(ctx, by); err != nil {
		return err
	}
	if err := waitFor(ctx, before, by); err != nil {
		return fmt.Errorf("cannot stop container %s yet: %w", inc.name, err)
	}
	if least := time.Now().Add(leastGrace); !done.requested && by.Before(least) {
		by = least
	} else {
		done.due.Store(true)
	}
	done.requested, done.unknown = true, done.unknown || inc.phase == unknown
	// By whole seconds: what has begun is given in full.
	seconds := int64((max(time.Until(by), 0) + time.Second - 1) / time.Second)
	if err := w.engine.cfg.Runtime.StopContainer(ctx, inc.id, seconds); err != nil && !gone(err) {
		return fmt.Errorf("cannot stop container %s: %w", inc.name, err)
	}
	done.stopped = true
	return nil
}

// turn is the end of a container that others wait for.
type turn struct {
	ending *ending
	over   chan struct{}
	err    error // why it has not ended; written before over is closed
}

// waitFor waits until containers have ended, but no longer than the grace period and
// what it takes to kill those that are killed then. It fails if one of them could not be
// stopped, and there is time for another try.
func waitFor(ctx context.Context, before []*turn, by time.Time) error {
	grace := time.NewTimer(time.Until(by))
	defer grace.Stop()
	for _, t := range before {
		select {
		case <-t.over:
			if t.err != nil && time.Until(by) > 0 {
				return fmt.Errorf("it ends after others: %w", t.err)
			}
		case <-grace.C:
			return waitForKilled(ctx, before)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// waitForKilled waits, after the grace period, for the containers that are being killed:
// the runtime is asked by whole seconds, rounded up, and takes a moment. It does not wait
// for those that have begun to stop only now.
func waitForKilled(ctx context.Context, before []*turn) error {
	limit := time.NewTimer(leastGrace)
	defer limit.Stop()
	for _, t := range before {
		if !t.ending.due.Load() {
			continue
		}
		select {
		case <-t.over:
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stopPod stops all containers of a pod, and then its sandboxes. The preStop hooks
// of all run at once; sidecars are stopped after the others and in the reverse of
// their order (KEP-753). With again set it is only to have another sandbox.
func (w *worker) stopPod(ctx context.Context, pod *corev1.Pod, s *stop, seen *runtimeView, again bool) error {
	if again {
		if err := w.recordRestarts(ctx, pod, toRestart(pod, seen)...); err != nil {
			return err
		}
	}
	by := time.Now().Add(podspec.GracePeriod(pod, nil))
	if s != nil {
		by = s.by
	}
	var stops []func() error
	var before []*turn // all that were added so far
	add := func(c *corev1.Container, inc *container, after []*turn) {
		t := &turn{ending: w.endingOf(inc.id), over: make(chan struct{})}
		t.ending.again = t.ending.again || again
		before = append(before, t)
		stops = append(stops, func() error {
			defer close(t.over)
			t.err = w.stopContainer(ctx, pod, seen, c, inc, by, "Stopping container "+inc.name, after)
			return t.err
		})
	}
	for _, name := range slices.Sorted(maps.Keys(seen.containers)) { // so that errors are in one order each time
		k, c := findContainer(pod, name)
		for _, inc := range seen.containers[name] {
			if inc.mayRun() && k != sidecarKind { // also if it is not of the spec
				add(c, inc, nil)
			}
		}
	}
	for _, c := range slices.Backward(sidecarsOf(pod)) {
		for _, inc := range seen.containers[c.Name] {
			if inc.mayRun() {
				add(c, inc, slices.Clone(before))
			}
		}
	}
	if err := atOnce(stops); err != nil {
		return err
	}
	for _, box := range seen.sandboxes {
		if !box.ready {
			continue
		}
		if err := w.stopSandbox(ctx, box); err != nil {
			return fmt.Errorf("cannot stop the pod's sandbox: %w", err)
		}
	}
	return nil
}

func (w *worker) stopSandbox(ctx context.Context, box *sandbox) error {
	call, cancel := outlasting(ctx)
	defer cancel()
	if err := w.engine.cfg.Runtime.StopPodSandbox(call, box.id); err != nil && !gone(err) {
		return err
	}
	return nil
}

// atOnce runs functions side by side, and returns all their errors.
func atOnce(functions []func() error) error {
	errs := make([]error, len(functions))
	var group sync.WaitGroup
	for i, f := range functions {
		group.Go(func() { errs[i] = f() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// discard removes a container whose command has not run.
func (w *worker) discard(ctx context.Context, name, id string) error {
	if err := w.forgetStart(name, id); err != nil { // first: else it would be missed
		return err
	}
	if err := w.engine.removeContainer(ctx, id); err != nil {
		return fmt.Errorf("cannot remove a container that was not started: %w", err)
	}
	return nil
}

// release has a pod that has ended, and is not deleted yet, give back what only
// running containers need: volumes and tokens. Its logs and termination messages
// stay, and the state by which it is known. One that was evicted, or ended on a disk
// that is short, gives back its containers too. It returns when to try again.
func (w *worker) release(ctx context.Context, pod *corev1.Pod, stop *stop, seen *runtimeView) (again time.Time) {
	never := time.Now().Add(24 * time.Hour)
	empty := (stop.evicts() || w.empty.Load()) && !w.isEmptied()
	if w.released.Load() && !empty {
		return never
	}
	w.engine.probes.Forget(pod.UID)
	w.engine.puller.Forget(pod.UID)
	if err := w.unmount(pod); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot give back the volumes of a pod that has ended yet")
		return time.Now().Add(lastRetry)
	}
	if empty {
		if !stop.evicts() && !w.onDisk() {
			return time.Now().Add(lastRetry) // else a restart may run again what has succeeded
		}
		if err := w.removeEnded(ctx, seen); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot remove the containers of a pod that has ended yet")
			return time.Now().Add(lastRetry)
		}
		w.setEmptied()
	}
	w.released.Store(true)
	return never
}

func (w *worker) isEmptied() bool {
	select {
	case <-w.emptied:
		return true
	default:
		return false
	}
}

// setEmptied is for the worker's goroutine.
func (w *worker) setEmptied() {
	if !w.isEmptied() {
		close(w.emptied)
	}
}

func (w *worker) unmount(pod *corev1.Pod) error {
	w.disk.Lock()
	defer w.disk.Unlock()
	if err := w.engine.volumes.Teardown(pod.UID); err != nil {
		return err
	}
	w.mounted = false
	return nil
}

// evicts reports whether the pod ran, and was ended for what it or others use.
func (s *stop) evicts() bool {
	return s != nil && s.failure != nil && s.failure.Reason == eviction.Reason && !s.failure.Rejected
}

// removeEnded removes the containers that have ended, as a kubelet does with those of
// a pod that was evicted, and on a full disk: they may have filled it. The status has how they ended.
// Of a pod that was evicted it may not be written yet, for want of the very space that this frees.
func (w *worker) removeEnded(ctx context.Context, seen *runtimeView) error {
	var errs []error
	for _, attempts := range seen.containers {
		for _, c := range attempts {
			if c.phase == exited && c.recalled == nil {
				errs = append(errs, w.engine.removeContainer(ctx, c.id))
			}
		}
	}
	return errors.Join(errs...)
}

// finish removes all that is left of a pod that has ended and was deleted. It
// returns when to try again, or that the pod is over.
func (w *worker) finish(ctx context.Context, pod *corev1.Pod, seen *runtimeView) (again time.Time, over bool) {
	w.engine.probes.Forget(pod.UID)
	w.engine.puller.Forget(pod.UID)
	ctx, span := startSpan(ctx, "cleanUpPod", pod)
	defer span.End()
	err := w.remove(ctx, pod, seen)
	span.SetStatus(err)
	if err != nil {
		log.G(ctx).WithError(err).Warn("Cannot clean up after the pod yet")
		return time.Now().Add(firstRetry), false
	}
	w.engine.drop(pod.UID)
	return time.Time{}, true
}
