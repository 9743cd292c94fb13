package podengine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
)

// runHook runs a lifecycle handler of a container.
func (e *Engine) runHook(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, handler *corev1.LifecycleHandler) (err error) {
	ctx, span := startSpan(ctx, "runHook", pod)
	annotate(span, attributeContainer, c.Name)
	defer endSpan(span, &err)
	target := probe.Target{Pod: pod, Container: c, ContainerID: inc.id}
	if box := seen.sandbox(); box != nil {
		if ips := e.podIPs(pod, box); len(ips) > 0 {
			target.IP = ips[0]
		}
	}
	return e.prober.Hook(ctx, target, handler)
}

// preStopHook is a preStop hook that was started. If its container is to end for another
// reason meanwhile, or sooner, it is neither broken off nor run again.
type preStopHook struct {
	end  *time.Timer   // ends it
	over chan struct{} // closed when it has ended
}

// startPreStop starts the preStop hook of a container, which ends by the given time, or the
// one of the last wait, or with the engine. Its failure is nothing but an event, which leaves out the command and
// what it has printed, as a kubelet does: both may have secrets.
func (w *worker) startPreStop(ctx context.Context, pod *corev1.Pod, seen *runtimeView, c *corev1.Container, inc *container, by time.Time) *preStopHook {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	hook := &preStopHook{end: time.AfterFunc(time.Until(by), cancel), over: make(chan struct{})}
	detach := context.AfterFunc(w.engine.ctx, cancel)
	w.engine.running.Go(func() {
		defer close(hook.over)
		defer cancel()
		defer hook.end.Stop()
		defer detach()
		err := w.engine.runHook(ctx, pod, seen, c, inc, c.Lifecycle.PreStop)
		if err != nil && w.engine.ctx.Err() == nil {
			log.G(ctx).WithError(err).WithField("container", c.Name).Warn("A preStop hook failed")
			w.engine.containerEvent(pod, c.Name, corev1.EventTypeWarning, eventPreStopFailed, "PreStopHook failed")
		}
	})
	return hook
}

// wait waits for the end of the hook, if there is one, and ends it at the given time. The
// error is ctx's.
func (h *preStopHook) wait(ctx context.Context, by time.Time) error {
	if h == nil {
		return nil
	}
	h.end.Reset(time.Until(by))
	select {
	case <-h.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
