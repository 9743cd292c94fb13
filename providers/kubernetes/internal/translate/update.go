package translate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// UpdateFields applies what home has changed since it was last applied to the remote
// pod, in place: labels, annotations, images, activeDeadlineSeconds and tolerations. It
// reports whether anything has changed. What the remote cluster has changed is kept.
func (o *Options) UpdateFields(pod, remote *corev1.Pod) (changed bool) {
	return o.updateFields(pod, remote, o.newLastApplied(pod))
}

// UpdateFieldsUnresized is UpdateFields while the remote pod has not been given the
// resources of the home pod, so that the next update does so.
func (o *Options) UpdateFieldsUnresized(pod, remote *corev1.Pod) (changed bool) {
	old, now := lastAppliedOf(remote), o.newLastApplied(pod)
	now.Generation, now.Resources = old.Generation, old.Resources
	return o.updateFields(pod, remote, now)
}

func (o *Options) updateFields(pod, remote *corev1.Pod, now lastApplied) (changed bool) {
	before := remote.DeepCopy()
	var wanted corev1.Pod
	o.setMetadata(pod, &wanted.ObjectMeta)
	wanted.Annotations[AnnotationLastApplied] = now.String()
	old := lastAppliedOf(remote)
	remote.Labels = mergeMetadata(remote.Labels, wanted.Labels, old.Labels)
	remote.Annotations = mergeMetadata(remote.Annotations, wanted.Annotations, old.Annotations)

	for _, containers := range [][]corev1.Container{remote.Spec.InitContainers, remote.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if image, ok := now.Images[c.Name]; ok && image != old.Images[c.Name] {
				c.Image = image
			}
		}
	}
	if now.ActiveDeadlineSeconds != nil && !ptr.Equal(now.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds) {
		remote.Spec.ActiveDeadlineSeconds = now.ActiveDeadlineSeconds
	}
	for _, t := range o.tolerations(pod.Spec.Tolerations) {
		if !hasToleration(remote.Spec.Tolerations, &t) {
			remote.Spec.Tolerations = append(remote.Spec.Tolerations, t)
		}
	}
	return !equality.Semantic.DeepEqual(before, remote)
}

func hasToleration(all []corev1.Toleration, t *corev1.Toleration) bool {
	for i := range all {
		if equality.Semantic.DeepEqual(&all[i], t) {
			return true
		}
	}
	return false
}

// mergeMetadata returns current with wanted, and without the keys of old that are no
// longer wanted.
func mergeMetadata(current, wanted map[string]string, old []string) map[string]string {
	next := maps.Clone(current)
	if next == nil {
		next = map[string]string{}
	}
	for _, name := range old {
		delete(next, name)
	}
	maps.Copy(next, wanted)
	return next
}

// UpdateResources applies what home has changed of the resources of containers to the
// remote pod, in place, and reports whether anything has changed. What home did not
// set, such as a default limit of the remote namespace, is kept.
func (o *Options) UpdateResources(pod, remote *corev1.Pod) (changed bool) {
	before := remote.DeepCopy()
	old, now := lastAppliedOf(remote), o.newLastApplied(pod)
	for _, containers := range [][]corev1.Container{remote.Spec.InitContainers, remote.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if _, ok := now.Images[c.Name]; ok { // a container of the home pod
				was, is := old.Resources[c.Name], now.Resources[c.Name]
				mergeChanges(&c.Resources.Requests, was.Requests, is.Requests)
				mergeChanges(&c.Resources.Limits, was.Limits, is.Limits)
			}
		}
	}
	return !equality.Semantic.DeepEqual(before, remote)
}

// mergeChanges applies the difference between two lists to a third.
func mergeChanges(to *corev1.ResourceList, was, is corev1.ResourceList) {
	for name := range was {
		if _, ok := is[name]; !ok {
			delete(*to, name)
		}
	}
	for name, quantity := range is {
		if old, ok := was[name]; ok && old.Cmp(quantity) == 0 {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = quantity
	}
}
