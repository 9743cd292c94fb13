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

// ending is what was done already to end a container, and is not done again when
// the rest has failed or has to be faster.
type ending struct {
	said   bool // that it is killed
	hooked bool // its preStop hook has run
}

func (w *worker) endingOf(id string) *ending {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endings[id] == nil {
		w.endings[id] = &ending{}
	}
	return w.endings[id]
}

// killContainer stops a container that will be started again.
func (w *worker) killContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, a action) error {
	for _, inc := range seen.containers[a.container] {
		if inc.id == a.id {
			_, c := findContainer(pod, a.container)
			grace := podspec.GracePeriod(pod, w.engine.failedProbe(pod, c))
			return w.stopContainer(ctx, pod, seen, c, inc, time.Now().Add(grace), a.why)
		}
	}
	return nil
}

// stopContainer runs the preStop hook of a container, and stops it. What runs
// still at the given time is killed. Of a container that is not in the spec, c
// is nil.
func (w *worker) stopContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, by time.Time, why string) error {
	done := w.endingOf(inc.id)
	if !done.said {
		done.said = true
		w.engine.containerEvent(pod, inc.name, corev1.EventTypeNormal, "Killing", why)
	}
	if c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && time.Until(by) > 0 && !done.hooked {
		if err := w.preStop(ctx, pod, seen, c, inc, by); err != nil {
			return err
		}
		done.hooked = true
		if least := time.Now().Add(leastGrace); by.Before(least) {
			by = least
		}
	}
	// By whole seconds: what has begun is given in full.
	seconds := int64((max(time.Until(by), 0) + time.Second - 1) / time.Second)
	if err := w.engine.cfg.Runtime.StopContainer(ctx, inc.id, seconds); err != nil && !gone(err) {
		return fmt.Errorf("cannot stop container %s: %w", inc.name, err)
	}
	return nil
}

// preStop runs the preStop hook of a container for as long as there is time. Its
// failure is nothing but an event; the error is ctx's.
func (w *worker) preStop(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, by time.Time) error {
	hook, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	err := w.engine.runHook(hook, pod, seen, c, inc, c.Lifecycle.PreStop)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		w.engine.containerEvent(pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", fmt.Sprintf("PreStopHook failed: %v", err))
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
	stop := func(c *corev1.Container, inc *container) error {
		return w.stopContainer(ctx, pod, seen, c, inc, by, "Stopping container "+inc.name)
	}
	var first []func() error
	for name, incarnations := range seen.containers {
		k, c := findContainer(pod, name)
		for _, inc := range incarnations {
			if inc.phase == running && k != sidecarKind { // also if it is not of the spec
				first = append(first, func() error { return stop(c, inc) })
			}
		}
	}
	if err := atOnce(first); err != nil {
		return err
	}
	for _, c := range slices.Backward(sidecarsOf(pod)) {
		for _, inc := range seen.containers[c.Name] {
			if inc.phase != running {
				continue
			}
			if err := stop(c, inc); err != nil {
				return err
			}
		}
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
func (w *worker) discard(ctx context.Context, id string) error {
	if err := w.engine.removeContainer(ctx, id); err != nil {
		return fmt.Errorf("cannot remove a container that was not started: %w", err)
	}
	return nil
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
