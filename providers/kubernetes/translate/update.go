package translate

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Update lays what can change of a pod over the remote one, in place: labels,
// annotations, images, activeDeadlineSeconds and tolerations. It tells whether
// anything has. What others have added to the remote pod stays.
func (o *Options) Update(pod, remote *corev1.Pod) (changed bool) {
	before := remote.DeepCopy()
	var wanted corev1.Pod
	o.meta(pod, &wanted.ObjectMeta)
	var old keys
	_ = json.Unmarshal([]byte(remote.Annotations[AnnotationKeys]), &old) // what cannot be read was not ours
	remote.Labels = replace(remote.Labels, wanted.Labels, old.Labels)
	remote.Annotations = replace(remote.Annotations, wanted.Annotations, old.Annotations)

	images := map[string]string{}
	for _, c := range append(pod.Spec.InitContainers[:len(pod.Spec.InitContainers):len(pod.Spec.InitContainers)], pod.Spec.Containers...) {
		images[c.Name] = c.Image
	}
	for _, containers := range [][]corev1.Container{remote.Spec.InitContainers, remote.Spec.Containers} {
		for i := range containers {
			if image, ok := images[containers[i].Name]; ok {
				containers[i].Image = image
			}
		}
	}
	if pod.Spec.ActiveDeadlineSeconds != nil {
		remote.Spec.ActiveDeadlineSeconds = pod.Spec.ActiveDeadlineSeconds
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

// Resize lays the resources of a pod's containers over the remote ones, in place,
// and tells whether that changed anything.
func Resize(pod, remote *corev1.Pod) (changed bool) {
	lay := func(from, to []corev1.Container) {
		for i := range from {
			for j := range to {
				if from[i].Name != to[j].Name || equality.Semantic.DeepEqual(from[i].Resources, to[j].Resources) {
					continue
				}
				to[j].Resources = *from[i].Resources.DeepCopy()
				changed = true
			}
		}
	}
	lay(pod.Spec.InitContainers, remote.Spec.InitContainers)
	lay(pod.Spec.Containers, remote.Spec.Containers)
	return changed
}
