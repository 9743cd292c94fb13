package podlifecycle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// waitSpan is the span of the time that a pod waited until a worker took it up.
const waitSpan = "waitForWorker"

// startPodSpan starts a span for what a worker of q does about a pod, whose logger
// names the pod in each line. The span begins when the pod became due, which is
// when the watch or the provider showed the change, and has one below it for the wait.
func startPodSpan(ctx context.Context, name string, q *queue.Queue, key string, pod *corev1.Pod) (context.Context, trace.Span) {
	var due time.Time
	if trace.Enabled(ctx) {
		due = q.DueSince(key)
	}
	ctx, span := trace.StartSpanAt(ctx, name, due)
	providercalls.Identify(span, pod)
	if !due.IsZero() {
		_, wait := trace.StartSpanAt(ctx, waitSpan, due)
		providercalls.Identify(wait, pod)
		wait.End()
	}
	return withPod(ctx, pod), span
}

// withPod has the logger of ctx name a pod in each line.
func withPod(ctx context.Context, pod *corev1.Pod) context.Context {
	return log.WithLogger(ctx, loggerOf(log.G(ctx), pod))
}

// aboutKey is withPod for what has only the key.
func (pc *Controller) aboutKey(ctx context.Context, key string) context.Context {
	r := pc.records.get(types.UID(key))
	if r == nil {
		return log.WithLogger(ctx, log.G(ctx).WithField("uid", key))
	}
	return withPod(ctx, r.form())
}

// continueTrace returns ctx with the span of the change that led to the present state
// of the record's pod as the parent of spans, so that what is done about the
// change by other workers is part of its trace.
func (r *podRecord) continueTrace(ctx context.Context) context.Context {
	r.mu.Lock()
	cause := r.cause
	r.mu.Unlock()
	if c, ok := cause.(trace.Continuer); ok {
		return c.Continue(ctx)
	}
	return ctx
}

// causedBy begins the trace of a change.
func (r *podRecord) causedBy(span trace.Span) {
	if _, ok := span.(trace.Continuer); !ok {
		return // nobody records it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cause = span
}

// settle ends the trace of a change of which the API has the outcome: what
// the provider reports from then on is another matter. The end of a pod that is
// being deleted is still to come. r.mu is held.
func (r *podRecord) settle(pod *corev1.Pod, phase corev1.PodPhase) {
	if pod.DeletionTimestamp == nil && phase != corev1.PodPending {
		r.cause = nil
	}
}
