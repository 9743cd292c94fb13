package podengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// leastGrace is what a container is given to end after its preStop hook, also
// if that has used up the grace period.
const leastGrace = 2 * time.Second

// killContainer stops a container that will be started again.
func (w *worker) killContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, a action) error {
	inc := seen.newest(a.container)
	if inc == nil || inc.id != a.id {
		return nil
	}
	_, c := findContainer(pod, a.container)
	grace := podspec.GracePeriod(pod, w.engine.failedProbe(pod, c))
	w.engine.cfg.Events.Event(pod, corev1.EventTypeNormal, "Killing", a.why)
	return w.stopContainer(ctx, pod, seen, c, inc, time.Now().Add(grace))
}

// stopContainer runs the preStop hook of a container, and stops it. What runs
// still at the given time is killed.
func (w *worker) stopContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, by time.Time) error {
	if c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && time.Until(by) > 0 {
		hook, cancel := context.WithDeadline(ctx, by)
		err := w.engine.runHook(hook, pod, seen, c, inc, c.Lifecycle.PreStop)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			w.engine.cfg.Events.Eventf(pod, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
		}
		if least := time.Now().Add(leastGrace); by.Before(least) {
			by = least
		}
	}
	seconds := int64(max(time.Until(by), 0) / time.Second)
	if time.Until(by) > 0 && seconds == 0 {
		seconds = 1
	}
	if err := w.engine.cfg.Runtime.StopContainer(ctx, inc.id, seconds); err != nil && !gone(err) {
		return fmt.Errorf("cannot stop container %s: %w", inc.name, err)
	}
	return nil
}

// stopPod stops all containers of a pod, sidecars after the others and in the
// reverse of their order (KEP-753), and then its sandboxes.
func (w *worker) stopPod(ctx context.Context, pod *corev1.Pod, s *stop, seen *runtimeView) error {
	by := time.Now().Add(podspec.GracePeriod(pod, nil))
	if s != nil {
		by = s.by
	}
	var first, sidecars, unknown []func() error
	eachContainer(pod, func(k kind, c *corev1.Container) {
		for _, inc := range seen.containers[c.Name] {
			if inc.phase != running {
				continue
			}
			stop := func() error {
				w.engine.cfg.Events.Event(pod, corev1.EventTypeNormal, "Killing", "Stopping container "+c.Name)
				return w.stopContainer(ctx, pod, seen, c, inc, by)
			}
			if k == sidecarKind {
				sidecars = append(sidecars, stop)
			} else {
				first = append(first, stop)
			}
		}
	})
	for name, incarnations := range seen.containers {
		if _, c := findContainer(pod, name); c != nil {
			continue
		}
		for _, inc := range incarnations {
			if inc.phase == running { // of a spec that we do not have
				unknown = append(unknown, func() error { return w.stopContainer(ctx, pod, seen, nil, inc, by) })
			}
		}
	}
	if err := atOnce(append(first, unknown...)); err != nil {
		return err
	}
	slices.Reverse(sidecars)
	for _, stop := range sidecars {
		if err := stop(); err != nil {
			return err
		}
	}
	for _, box := range seen.sandboxes {
		if !box.ready {
			continue
		}
		if err := w.engine.cfg.Runtime.StopPodSandbox(ctx, box.id); err != nil && !gone(err) {
			return fmt.Errorf("cannot stop the pod's sandbox: %w", err)
		}
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

// discard removes a container that was made and not started.
func (w *worker) discard(ctx context.Context, id string) error {
	if err := w.engine.cfg.Runtime.RemoveContainer(ctx, id); err != nil && !gone(err) {
		return fmt.Errorf("cannot remove a container that was not started: %w", err)
	}
	w.engine.known.forget(id)
	return nil
}

// finish removes all that is left of a pod that has ended and was deleted.
func (w *worker) finish(ctx context.Context, pod *corev1.Pod, seen *runtimeView, next time.Time) (time.Time, bool, bool) {
	w.engine.probes.Forget(pod.UID)
	w.engine.puller.Forget(pod.UID)
	if err := w.engine.remove(ctx, pod, seen); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot clean up after the pod yet")
		return time.Now().Add(firstRetry), false, false
	}
	w.engine.drop(pod.UID)
	return next, false, true
}
