package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// The attributes of spans, by OpenTelemetry's conventions.
const (
	attributeNamespace = "k8s.namespace.name"
	attributePod       = "k8s.pod.name"
	attributeUID       = "k8s.pod.uid"
	attributeNode      = "k8s.node.name"
)

// startPodSpan starts a span about a pod, whose logger names the pod in each
// line.
func startPodSpan(ctx context.Context, name string, pod *corev1.Pod) (context.Context, trace.Span) {
	ctx, span := trace.StartSpan(ctx, name)
	if s, ok := span.(trace.AttributeSetter); ok {
		s.SetAttributes(log.Fields{attributeNamespace: pod.Namespace, attributePod: pod.Name,
			attributeUID: string(pod.UID), attributeNode: pod.Spec.NodeName})
	}
	return withPod(ctx, pod), span
}

// withPod has the logger of ctx name a pod in each line.
func withPod(ctx context.Context, pod *corev1.Pod) context.Context {
	return log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name, "uid": string(pod.UID)}))
}

// startCallSpan starts a span for a method of the provider. The logger of ctx
// knows which pod it is about.
func startCallSpan(ctx context.Context, method, namespace, name string) (context.Context, trace.Span) {
	ctx, span := trace.StartSpan(ctx, method)
	if s, ok := span.(trace.AttributeSetter); ok && name != "" {
		s.SetAttributes(log.Fields{attributeNamespace: namespace, attributePod: name})
	}
	return ctx, span
}

// follows returns ctx with the span of the change that led to the present state
// of the record's pod as the parent of spans, so that what is done about the
// change by other workers is part of its trace.
func (r *podRecord) follows(ctx context.Context) context.Context {
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

// settle ends the trace of a change that the API has heard the outcome of: what
// the provider reports from then on is another matter. The end of a pod that is
// being deleted is still to come. r.mu is held.
func (r *podRecord) settle(pod *corev1.Pod, phase corev1.PodPhase) {
	if pod.DeletionTimestamp == nil && phase != corev1.PodPending {
		r.cause = nil
	}
}
