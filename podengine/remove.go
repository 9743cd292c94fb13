package podengine

import (
	"context"
	"errors"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// remove removes all that is left of a pod that has ended: containers, sandboxes,
// volumes, logs, state.
func (w *worker) remove(ctx context.Context, pod *corev1.Pod, seen *runtimeView) error {
	e := w.engine
	var errs []error
	removed := map[string]bool{}
	for _, box := range seen.sandboxes {
		errs = append(errs, e.removeSandbox(ctx, box.id))
		removed[box.id] = true
	}
	for _, attempts := range seen.containers {
		for _, c := range attempts {
			if c.recalled == nil && !removed[c.sandbox] { // it has gone without them
				errs = append(errs, e.removeContainer(ctx, c.id))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.removeCgroup(ctx, pod)
	w.disk.Lock()
	defer w.disk.Unlock()
	if err := e.volumes.Teardown(pod.UID); err != nil {
		return err
	}
	e.cfg.Objects.Forget(pod.UID)
	e.sent.forget(pod.UID)
	if err := os.RemoveAll(e.cfg.Node.LogDirectory(pod)); err != nil {
		return err
	}
	e.unlinkLogs(pod, e.cfg.Node.LogDirectory(pod))
	w.removed = true // nothing is written from here on
	return e.removeState(pod.UID)
}

// removeSandbox stops and removes a sandbox with all that is in it.
func (e *Engine) removeSandbox(ctx context.Context, id string) error {
	if err := e.stopSandbox(ctx, id); err != nil {
		return err
	}
	return e.removeStopped(ctx, id)
}

// removeStopped removes a sandbox that has been stopped, with all that is in it.
func (e *Engine) removeStopped(ctx context.Context, id string) error {
	containers, err := e.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: id})
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := e.removeContainer(ctx, c.Id); err != nil {
			return err
		}
	}
	if err := e.cfg.Runtime.RemovePodSandbox(ctx, id); err != nil && !gone(err) {
		return err
	}
	e.known.forget(id)
	return nil
}

// stopSandbox ends all that runs in a sandbox, if there is one.
func (e *Engine) stopSandbox(ctx context.Context, id string) error {
	if err := e.cfg.Runtime.StopPodSandbox(ctx, id); err != nil && !gone(err) {
		return err
	}
	return nil
}

// removeContainer removes a container from the runtime, if it is there.
func (e *Engine) removeContainer(ctx context.Context, id string) error {
	if err := e.cfg.Runtime.RemoveContainer(ctx, id); err != nil && !gone(err) {
		return err
	}
	e.known.forget(id)
	return nil
}

// gone reports whether the runtime has no such thing (any more).
func gone(err error) bool { return status.Code(err) == codes.NotFound || errdefs.IsNotFound(err) }
