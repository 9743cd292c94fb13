package podengine

import (
	"context"

	corev1 "k8s.io/api/core/v1"

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
