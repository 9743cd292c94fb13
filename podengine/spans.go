package podengine

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// The attributes of spans, by OpenTelemetry's conventions.
const (
	attributeNamespace = "k8s.namespace.name"
	attributePod       = "k8s.pod.name"
	attributeUID       = "k8s.pod.uid"
	attributeContainer = "k8s.container.name"
	attributeImage     = "container.image.name"
)

// spanOf names the spans of actions.
var spanOf = map[verb]string{
	doSandbox: "makeSandbox",
	doStart:   "startContainer",
	doLaunch:  "startContainer",
	doKill:    "killContainer",
	doDiscard: "discardContainer",
	doResize:  "resizeContainer",
	doExpire:  "expirePod",
	doFail:    "failPod",
	doRestart: "restartPod",
	doStop:    "stopPod",
}

// startSpan starts a span for what is done about a pod.
func startSpan(ctx context.Context, name string, pod *corev1.Pod) (context.Context, trace.Span) {
	ctx, span := trace.StartSpan(ctx, name)
	annotate(span, attributeNamespace, pod.Namespace, attributePod, pod.Name, attributeUID, string(pod.UID))
	return ctx, span
}

// annotate gives a span attributes, by key and value. Nothing is made of them for a
// span that nobody records.
func annotate(span trace.Span, pairs ...string) {
	s, ok := span.(trace.AttributeSetter)
	if !ok {
		return
	}
	fields := log.Fields{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fields[pairs[i]] = pairs[i+1]
		}
	}
	s.SetAttributes(fields)
}

// endSpan ends a span with the error that err has by then. What was given up is no
// failure.
func endSpan(span trace.Span, err *error) {
	if !errors.Is(*err, errAbandoned) {
		span.SetStatus(*err)
	}
	span.End()
}

// cause is the span of the call that asked for what is done about a pod.
type cause struct{ trace.Continuer }

// causedBy has what is done about the pod from now on be part of a span's trace.
func (w *worker) causedBy(span trace.Span) {
	c, ok := span.(trace.Continuer)
	if !ok {
		return // nobody records it
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cause = &cause{c}
}

// settled ends the trace of what was asked for, unless something else was
// meanwhile. What becomes of the pod later, such as a restart of a container, is
// a trace of its own, and so is each further try of what has failed.
func (w *worker) settled(c *cause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == c {
		w.cause = nil
	}
}

// below is ctx for spans of the trace of c, if there is one.
func (c *cause) below(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return c.Continue(ctx)
}

// tracedRuntime has a span for each call that changes something. Those that only
// look are left out: there are many, and they take no time.
type tracedRuntime struct{ internalapi.RuntimeService }

func (r tracedRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (_ string, err error) {
	ctx, span := trace.StartSpan(ctx, "RunPodSandbox")
	defer endSpan(span, &err)
	return r.RuntimeService.RunPodSandbox(ctx, config, handler)
}

func (r tracedRuntime) StopPodSandbox(ctx context.Context, id string) (err error) {
	ctx, span := trace.StartSpan(ctx, "StopPodSandbox")
	defer endSpan(span, &err)
	return r.RuntimeService.StopPodSandbox(ctx, id)
}

func (r tracedRuntime) RemovePodSandbox(ctx context.Context, id string) (err error) {
	ctx, span := trace.StartSpan(ctx, "RemovePodSandbox")
	defer endSpan(span, &err)
	return r.RuntimeService.RemovePodSandbox(ctx, id)
}

func (r tracedRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, inside *runtimeapi.PodSandboxConfig) (_ string, err error) {
	ctx, span := trace.StartSpan(ctx, "CreateContainer")
	defer endSpan(span, &err)
	return r.RuntimeService.CreateContainer(ctx, sandbox, config, inside)
}

func (r tracedRuntime) StartContainer(ctx context.Context, id string) (err error) {
	ctx, span := trace.StartSpan(ctx, "StartContainer")
	defer endSpan(span, &err)
	return r.RuntimeService.StartContainer(ctx, id)
}

func (r tracedRuntime) StopContainer(ctx context.Context, id string, timeout int64) (err error) {
	ctx, span := trace.StartSpan(ctx, "StopContainer")
	defer endSpan(span, &err)
	return r.RuntimeService.StopContainer(ctx, id, timeout)
}

func (r tracedRuntime) RemoveContainer(ctx context.Context, id string) (err error) {
	ctx, span := trace.StartSpan(ctx, "RemoveContainer")
	defer endSpan(span, &err)
	return r.RuntimeService.RemoveContainer(ctx, id)
}

func (r tracedRuntime) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) (err error) {
	ctx, span := trace.StartSpan(ctx, "UpdateContainerResources")
	defer endSpan(span, &err)
	return r.RuntimeService.UpdateContainerResources(ctx, id, resources)
}
