package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
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

// waitSpan is the span of the time that a pod waited until a worker took it up.
const waitSpan = "waitForWorker"

// startPodSpan starts a span for what a worker of q does about a pod, whose logger
// names the pod in each line. The span begins when the pod became due, which is
// when the watch or the provider told of it, and has one below it for the wait.
func startPodSpan(ctx context.Context, name string, q *queue.Queue, key string, pod *corev1.Pod) (context.Context, trace.Span) {
	var due time.Time
	if trace.Enabled(ctx) {
		due = q.DueSince(key)
	}
	ctx, span := trace.StartSpanAt(ctx, name, due)
	identifyPod(span, pod)
	if !due.IsZero() {
		_, wait := trace.StartSpanAt(ctx, waitSpan, due)
		identifyPod(wait, pod)
		wait.End()
	}
	return withPod(ctx, pod), span
}

func identifyPod(span trace.Span, pod *corev1.Pod) {
	if s, ok := span.(trace.AttributeSetter); ok {
		s.SetAttributes(log.Fields{attributeNamespace: pod.Namespace, attributePod: pod.Name,
			attributeUID: string(pod.UID), attributeNode: pod.Spec.NodeName})
	}
}

// withPod has the logger of ctx name a pod in each line.
func withPod(ctx context.Context, pod *corev1.Pod) context.Context {
	return log.WithLogger(ctx, log.G(ctx).WithFields(log.Fields{"namespace": pod.Namespace, "pod": pod.Name, "uid": string(pod.UID)}))
}

// aboutKey is withPod for what has only the key.
func (pc *PodController) aboutKey(ctx context.Context, key string) context.Context {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return ctx // made by keyOf: cannot happen
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if r := pc.records.get(key); r != nil {
		pod = r.subject(namespace, name, nil)
	}
	return withPod(ctx, pod)
}

// subject is the pod that a call of the provider is about; the zero value is none.
type subject struct {
	namespace, name string
	uid             types.UID
}

func subjectOf(pod *corev1.Pod) subject { return subject{pod.Namespace, pod.Name, pod.UID} }

// startCallSpan starts a span for a method of the provider. The logger of ctx
// knows which pod it is about.
func startCallSpan(ctx context.Context, method string, about subject) (context.Context, trace.Span) {
	ctx, span := trace.StartSpan(ctx, method)
	if s, ok := span.(trace.AttributeSetter); ok && about != (subject{}) {
		s.SetAttributes(log.Fields{attributeNamespace: about.namespace, attributePod: about.name, attributeUID: string(about.uid)})
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
