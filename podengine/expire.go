package podengine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// expire ends a pod that has been active for longer than it may.
func (w *worker) expire(ctx context.Context, pod *corev1.Pod) {
	const message = "Pod was active on the node longer than the specified deadline"
	w.engine.cfg.Events.Event(pod, corev1.EventTypeNormal, eventDeadlineExceeded, message)
	w.fail(ctx, time.Now().Add(podspec.GracePeriod(pod, nil)), podspec.Failure{Reason: eventDeadlineExceeded, Message: message})
}

// failWithoutSandbox ends a pod that is to run once, and whose sandbox was lost after it had begun and
// before it was done. A kubelet that sees the sandbox makes no other either, and leaves such a pod as it is.
func (w *worker) failWithoutSandbox(ctx context.Context, pod *corev1.Pod) {
	w.fail(ctx, time.Now(), podspec.Failure{
		Reason:  "SandboxLost",
		Message: "The pod's sandbox was lost before the pod was done, and it gets no other one: its restart policy is Never, and it has begun",
	})
}

// fail ends a pod for a reason. That must outlive this process: containers that end well when they
// are stopped would make a success of it.
func (w *worker) fail(ctx context.Context, by time.Time, why podspec.Failure) {
	if err := w.end(stop{by: by, failure: &why}); err != nil {
		log.G(ctx).WithError(err).WithField("reason", why.Reason).Warn("Cannot keep why the node ends the pod")
	}
}
