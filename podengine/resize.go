package podengine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
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
// status that it left. That of one that does not run has what the next run gets.
func (w *worker) recallResources() {
	for _, statuses := range [][]corev1.ContainerStatus{w.status.InitContainerStatuses, w.status.ContainerStatuses} {
		for _, s := range statuses {
			if s.Resources != nil && s.State.Running != nil {
				id := bareID(s.ContainerID)
				w.applied[id] = resourcesOf(&corev1.Container{Resources: *s.Resources})
			}
		}
	}
}

// memoryFalls reports whether a container is to be limited to less memory than it
// runs with. No limit is the highest, and cannot be gone back to.
func memoryFalls(has, wanted corev1.ResourceRequirements) bool {
	before, after := has.Limits.Memory(), wanted.Limits.Memory()
	return !after.IsZero() && (before.IsZero() || after.Cmp(*before) < 0)
}

// resizeContainer gives a container that runs the resources that the pod says now.
func (w *worker) resizeContainer(ctx context.Context, pod *corev1.Pod, seen *runtimeView, a action) error {
	_, c := findContainer(pod, a.container)
	err := w.updateResources(ctx, pod, c, seen.byID(a.container, a.id))
	if ctx.Err() == nil {
		w.check(pod, a.container, eventResizeError, "", err)
	}
	if err != nil {
		return err
	}
	w.applied[a.id] = resourcesOf(c)
	w.resizeSandbox(ctx, pod, seen)
	return nil
}

// updateResources has the runtime give a container its resources, unless the kernel
// would kill it for that.
func (w *worker) updateResources(ctx context.Context, pod *corev1.Pod, c *corev1.Container, inc *container) error {
	if has, ok := given(inc, w.applied); ok && memoryFalls(has, c.Resources) {
		if err := w.fitsMemory(ctx, c, inc.id); err != nil {
			return fmt.Errorf("cannot decrease memory limits: %w", err)
		}
	}
	request := w.engine.cfg.Node.UpdateContainer(pod, c, inc.id)
	err := w.engine.cfg.Runtime.UpdateContainerResources(ctx, inc.id, &runtimeapi.ContainerResources{Linux: request.Linux})
	if err != nil {
		return fmt.Errorf("cannot resize container %s: %w", c.Name, err)
	}
	return nil
}

// fitsMemory returns an error, in a kubelet's words, unless a container uses less
// memory than it is to be limited to. The error leaves out what it uses: with that,
// each attempt would be another event, and another status.
func (w *worker) fitsMemory(ctx context.Context, c *corev1.Container, id string) error {
	listed, err := w.engine.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{Id: id})
	if err != nil {
		return fmt.Errorf("unable to read memory usage of container %q: %w", c.Name, err)
	}
	i := slices.IndexFunc(listed, func(s *runtimeapi.ContainerStats) bool { return s.GetAttributes().GetId() == id })
	if i < 0 || listed[i].GetMemory().GetUsageBytes() == nil {
		return fmt.Errorf("missing container %q memory usage", c.Name)
	}
	limit := c.Resources.Limits.Memory().Value()
	if listed[i].Memory.UsageBytes.Value >= uint64(limit) {
		return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage", c.Name, limit)
	}
	return nil
}

// withMemoryInUse is the pod with the memory limits of before for those containers
// that are to have lower ones and do not run with them yet: what is around them must
// not shrink before they have.
func (w *worker) withMemoryInUse(pod *corev1.Pod, seen *runtimeView) *corev1.Pod {
	held := pod
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		inc := seen.newest(c.Name)
		if inc == nil || inc.phase != running {
			return
		}
		has, ok := given(inc, w.applied)
		if !ok || !memoryFalls(has, c.Resources) {
			return
		}
		if held == pod {
			held = pod.DeepCopy()
			held.Status.QOSClass = podspec.QOSClass(pod) // which no resize changes
		}
		_, c = findContainer(held, c.Name)
		delete(c.Resources.Limits, corev1.ResourceMemory)
		if limit, limited := has.Limits[corev1.ResourceMemory]; limited {
			c.Resources.Limits[corev1.ResourceMemory] = limit
		}
	})
	return held
}

// resizeSandbox sends the new sums to the runtime, for those that size a machine
// by them. The containers have what they need without.
func (w *worker) resizeSandbox(ctx context.Context, pod *corev1.Pod, seen *runtimeView) {
	box := seen.sandbox()
	if box == nil {
		return
	}
	request := w.engine.cfg.Node.UpdateSandbox(w.withMemoryInUse(pod, seen), box.id)
	_, err := w.engine.cfg.Runtime.UpdatePodSandboxResources(ctx, request)
	if err != nil && status.Code(err) != codes.Unimplemented && ctx.Err() == nil {
		log.G(ctx).WithError(err).Warn("Cannot tell the runtime of the pod's new resources")
	}
}

// recordResize records that a resize has started, or is done, since the status was made last.
func (w *worker) recordResize(pod *corev1.Pod, stop *stop, inProgress *podspec.Resize) {
	w.mu.Lock()
	var before *corev1.PodCondition
	if w.status != nil {
		if i := slices.IndexFunc(w.status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizeInProgress }); i >= 0 {
			before = &w.status.Conditions[i]
		}
	}
	w.mu.Unlock()
	switch {
	case stop != nil:
	case before == nil && inProgress != nil:
		w.engine.cfg.Events.Event(pod, corev1.EventTypeNormal, eventResizeStarted, "Pod resize started: "+resourceSummary(pod, pod.Generation))
	case before != nil && inProgress == nil:
		w.engine.cfg.Events.Event(pod, corev1.EventTypeNormal, eventResizeCompleted, "Pod resize completed: "+resourceSummary(pod, before.ObservedGeneration))
	}
}

// resourceSummary is what a kubelet's events say of a pod's resources.
func resourceSummary(pod *corev1.Pod, generation int64) string {
	type allocation struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var summary struct {
		InitContainers []allocation `json:"initContainers,omitempty"`
		Containers     []allocation `json:"containers,omitempty"`
		Generation     int64        `json:"generation"`
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		summary.InitContainers = append(summary.InitContainers, allocation{c.Name, c.Resources})
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		summary.Containers = append(summary.Containers, allocation{c.Name, c.Resources})
	}
	summary.Generation = generation
	text, err := json.Marshal(summary)
	if err != nil { // quantities are always text
		return err.Error()
	}
	return string(text)
}

// setResources says what a container runs with, or would if it ran, and what the node has
// set aside for it.
func (w *worker) setResources(s *corev1.ContainerStatus, c *corev1.Container, inc *container) {
	has, ok := given(inc, w.applied)
	if !ok || !inc.mayRun() {
		has = *c.Resources.DeepCopy()
	}
	has.Claims = c.Resources.Claims
	s.Resources = &has
	s.AllocatedResources = c.Resources.Requests.DeepCopy()
}
