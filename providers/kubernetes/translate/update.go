package translate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Update lays what home has changed of a pod over the remote one, in place: labels,
// annotations, images, activeDeadlineSeconds and tolerations. It tells whether
// anything has changed. What the remote cluster has made of the pod stays.
func (o *Options) Update(pod, remote *corev1.Pod) (changed bool) {
	before := remote.DeepCopy()
	var wanted corev1.Pod
	o.meta(pod, &wanted.ObjectMeta)
	old, now := askedOf(remote), o.ask(pod)
	remote.Labels = replace(remote.Labels, wanted.Labels, old.Labels)
	remote.Annotations = replace(remote.Annotations, wanted.Annotations, old.Annotations)

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

// replace returns a map with what is wanted, and without what was wanted formerly
// and is no more.
func replace(current, wanted map[string]string, old []string) map[string]string {
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

// Resize lays what home has changed of the resources of a pod's containers over the
// remote ones, in place, and tells whether that changed anything. What was not asked
// for, such as a default limit of the remote namespace, stays.
func (o *Options) Resize(pod, remote *corev1.Pod) (changed bool) {
	before := remote.DeepCopy()
	old, now := askedOf(remote), o.ask(pod)
	for _, containers := range [][]corev1.Container{remote.Spec.InitContainers, remote.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if _, ok := now.Images[c.Name]; ok { // it is one of home's
				was, is := old.Resources[c.Name], now.Resources[c.Name]
				lay(&c.Resources.Requests, was.Requests, is.Requests)
				lay(&c.Resources.Limits, was.Limits, is.Limits)
			}
		}
	}
	return !equality.Semantic.DeepEqual(before, remote)
}

// lay makes the change between two lists in a third.
func lay(to *corev1.ResourceList, was, is corev1.ResourceList) {
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
