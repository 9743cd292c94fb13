package podengine

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Cgroups places pods in control groups; package podcgroup has one. Its methods are
// called from several goroutines.
type Cgroups interface {
	// Parent is the group in which the runtime makes those of the pod's sandbox and
	// containers.
	Parent(ctx context.Context, pod *corev1.Pod) (string, error)
	// Set makes that group and limits it, if it is there already to what the pod may
	// use by now.
	Set(ctx context.Context, pod *corev1.Pod) error
	// Remove removes the group of a pod of a class, if there is one. Nothing of the pod
	// runs.
	Remove(ctx context.Context, uid types.UID, class corev1.PodQOSClass) error
}

// cgroupState is what a worker knows of its pod's control group.
type cgroupState struct {
	resources string // that it was given last
	removed   bool   // since
	failing   bool   // which was logged
}

func (e *Engine) cgroupParent(ctx context.Context, pod *corev1.Pod) (string, error) {
	if e.cfg.Cgroups == nil {
		return e.cfg.CgroupParent, nil
	}
	return e.cfg.Cgroups.Parent(ctx, pod)
}

// reconcileCgroup applies to the pod's control group the pod's resources, which a resize
// changes, or removes it at the pod's end.
func (w *worker) reconcileCgroup(ctx context.Context, pod *corev1.Pod, seen *runtimeView, next action) {
	switch box := seen.sandbox(); {
	case next.verb == doEnd:
		w.removeCgroup(ctx, pod)
	case box != nil && box.ready:
		w.setCgroup(ctx, w.withMemoryInUse(pod, seen))
	}
}

// setCgroup makes and limits the pod's control group, unless that was done. Containers
// have limits of their own and run without it, so a failure does not hold them up: it
// is tried again with the next look at the pod.
func (w *worker) setCgroup(ctx context.Context, pod *corev1.Pod) {
	resources := resourcesOfPod(pod)
	if w.engine.cfg.Cgroups == nil || !w.cgroup.removed && w.cgroup.resources == resources {
		return
	}
	err := w.engine.cfg.Cgroups.Set(ctx, pod)
	w.cgroupFailed(ctx, err)
	if err == nil {
		w.cgroup = cgroupState{resources: resources}
	}
}

// removeCgroup removes the pod's control group, unless that was done. One that cannot
// be removed holds nothing, and does not hold up the pod's end.
func (w *worker) removeCgroup(ctx context.Context, pod *corev1.Pod) {
	if w.engine.cfg.Cgroups == nil || w.cgroup.removed {
		return
	}
	err := w.engine.cfg.Cgroups.Remove(ctx, pod.UID, podspec.QOSClass(pod))
	w.cgroupFailed(ctx, err)
	w.cgroup.removed = err == nil
}

// removeCgroups removes the control group of a pod that is not known any more.
func (e *Engine) removeCgroups(ctx context.Context, uid types.UID) error {
	if e.cfg.Cgroups == nil {
		return nil
	}
	var errs []error
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		errs = append(errs, e.cfg.Cgroups.Remove(ctx, uid, class))
	}
	return errors.Join(errs...)
}

// cgroupFailed logs a failure, once until there is a success.
func (w *worker) cgroupFailed(ctx context.Context, err error) {
	if err != nil && !w.cgroup.failing {
		log.G(ctx).WithError(err).Warn("Cannot set up or remove the control group of a pod; its containers have their limits all the same")
	}
	w.cgroup.failing = err != nil
}

// resourcesOfPod are all resources that the pod's spec names.
func resourcesOfPod(pod *corev1.Pod) string {
	var all []corev1.ResourceRequirements
	if pod.Spec.Resources != nil {
		all = append(all, *pod.Spec.Resources)
	}
	eachContainer(pod, func(_ kind, c *corev1.Container) { all = append(all, c.Resources) })
	text, _ := json.Marshal(all) // which cannot fail
	return string(text)
}
