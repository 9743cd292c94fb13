package podgroup

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// resourcesOf returns the resources of a pod that a resize changes.
func resourcesOf(pod *corev1.Pod) (all []corev1.ResourceRequirements) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, c.Resources)
	}
	if pod.Spec.Resources != nil {
		all = append(all, *pod.Spec.Resources)
	}
	return all
}

// infeasible returns the resize of a pod whose unit was created with other resources, as no unit is resized; nil
// if it has the same. Of a unit of an earlier process what the status says holds, until the pod changes.
func (p *Provider) infeasible(pod *corev1.Pod) *podspec.Resize {
	var created []corev1.ResourceRequirements
	p.renewals.update(pod.UID, func(state *renewal) { created = state.resources })
	pending := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending && c.ObservedGeneration == pod.Generation
	})
	if created == nil && !pending || created != nil && equality.Semantic.DeepEqual(created, resourcesOf(pod)) {
		return nil
	}
	return &podspec.Resize{Reason: corev1.PodReasonInfeasible, Message: p.opts.Service + " does not resize pods that run"}
}

// UpdatePod implements node.PodLifecycleHandler. That a pod is not resized no event shows.
func (w *watchingProvider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	if err := w.Provider.UpdatePod(ctx, pod); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found, ok := w.units.lookup(pod.UID); ok && w.notify != nil && w.units.owner.isOurs(&found) {
		w.report(&found)
	}
	return nil
}
