package podengine

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// resourcesAnnotation keeps with a container the resources that it was made with.
const resourcesAnnotation = "virtual-kubelet.io/resources"

// resizable are the resources that can change in a container that runs
// (KEP-1287).
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// resourcesOf are the resources of a container, as its annotation has them.
func resourcesOf(c *corev1.Container) string {
	text, err := json.Marshal(corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: c.Resources.Requests})
	if err != nil {
		return "" // which is "not known"
	}
	return string(text)
}

// given are the resources that a container runs with; ok is false if that is not
// known.
func given(inc *container, applied map[string]string) (r corev1.ResourceRequirements, ok bool) {
	text := inc.resources
	if later, ok := applied[inc.id]; ok {
		text = later
	}
	return r, text != "" && json.Unmarshal([]byte(text), &r) == nil
}

// resizeOf reports whether a running container is to get other resources, and
// whether it has to be started again for them.
func resizeOf(c *corev1.Container, inc *container, applied map[string]string) (resize, restart bool) {
	has, ok := given(inc, applied)
	if !ok {
		return false, false
	}
	for _, name := range resizable {
		if has.Requests.Name(name, "").Cmp(*c.Resources.Requests.Name(name, "")) == 0 &&
			has.Limits.Name(name, "").Cmp(*c.Resources.Limits.Name(name, "")) == 0 {
			continue
		}
		resize = true
		for _, policy := range c.ResizePolicy {
			restart = restart || policy.ResourceName == name && policy.RestartPolicy == corev1.RestartContainer
		}
	}
	return resize, restart
}

// recallResources takes what an earlier process has given to containers from the
// status that it left.
func (w *worker) recallResources() {
	for _, statuses := range [][]corev1.ContainerStatus{w.status.InitContainerStatuses, w.status.ContainerStatuses} {
		for _, s := range statuses {
			if s.Resources != nil {
				id := bareID(s.ContainerID)
				w.applied[id] = resourcesOf(&corev1.Container{Resources: *s.Resources})
			}
		}
	}
}

// resizeContainer gives a container that runs the resources that the pod says now.
func (w *worker) resizeContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, a action) error {
	_, c := findContainer(pod, a.container)
	request := w.engine.cfg.Node.UpdateContainer(pod, c, a.id)
	err := w.engine.cfg.Runtime.UpdateContainerResources(ctx, a.id, &runtimeapi.ContainerResources{Linux: request.Linux})
	if err != nil {
		err = fmt.Errorf("cannot resize container %s: %w", a.container, err)
	}
	if ctx.Err() == nil {
		w.check(pod, a.container, eventResizeError, "", err)
	}
	if err != nil {
		return err
	}
	w.applied[a.id] = resourcesOf(c)
	w.engine.containerEvent(pod, a.container, corev1.EventTypeNormal, eventResizeCompleted, "Container resources were changed to "+w.applied[a.id])
	w.resizeSandbox(ctx, pod, seen)
	return nil
}

// resizeSandbox sends the new sums to the runtime, for those that size a machine
// by them. The containers have what they need without.
func (w *worker) resizeSandbox(ctx context.Context, pod *corev1.Pod, seen *runtimeView) {
	box := seen.sandbox()
	if box == nil {
		return
	}
	_, err := w.engine.cfg.Runtime.UpdatePodSandboxResources(ctx, w.engine.cfg.Node.UpdateSandbox(pod, box.id))
	if err != nil && status.Code(err) != codes.Unimplemented && ctx.Err() == nil {
		log.G(ctx).WithError(err).Warn("Cannot tell the runtime of the pod's new resources")
	}
}

// setResources says what a container runs with.
func (w *worker) setResources(s *corev1.ContainerStatus, c *corev1.Container, inc *container) {
	has, ok := given(inc, w.applied)
	if !ok {
		has = *c.Resources.DeepCopy()
	}
	has.Claims = c.Resources.Claims
	s.Resources = &has
	s.AllocatedResources = has.Requests.DeepCopy()
}
