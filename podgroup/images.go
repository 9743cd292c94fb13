package podgroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/imagename"
)

// images are those that a pod's unit was given last by this process. A list may be older, and a unit that
// was just created need not show its containers.
type images struct {
	given   map[string]string // by container; empty of one that may not have arrived
	updated bool              // by an update: lists may show what was there before
}

func imagesOf(pod *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all[c.Name] = c.Image
	}
	return all
}

// of returns the image of a container of a unit, and whether anything is known of it.
func (i *images) of(u *Unit, container string) (image string, known bool) {
	if found := u.Container(container); found != nil && found.Image != "" && !i.updated {
		return found.Image, true
	}
	image, known = i.given[container]
	return image, known
}

// compare returns the containers of a pod that have another image than those of its unit, which get the
// images that they are known to have. Two names of the same image do not differ: an update would restart the
// container. It is unsure while the unit does not show what may have to be updated.
func (i *images) compare(pod *corev1.Pod, u *Unit) (differ []string, unsure bool) {
	u.Containers = slices.Clone(u.Containers)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		image, known := i.of(u, c.Name)
		found := u.Container(c.Name)
		if known && found != nil {
			found.Image = image
		}
		switch {
		case !known:
			unsure = unsure || u.Unknown
		case imagename.Normalized(c.Image) != imagename.Normalized(image):
			differ = append(differ, c.Name)
			unsure = unsure || u.Unknown || found == nil
		}
	}
	return differ, unsure
}

// showImages shows in the pod of a unit the images that the unit has, if they are others and can be updated. That
// has no generation then: the controller, which may just have begun, compares the images.
func (p *Provider) showImages(pod *corev1.Pod, u *Unit) {
	if _, ok := p.backend.(Updater); !ok {
		return
	}
	var state renewal
	p.renewals.update(pod.UID, func(known *renewal) { state = *known })
	compared := *u
	differ, _ := state.images.compare(pod, &compared)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if c := &containers[i]; slices.Contains(differ, c.Name) {
				c.Image, _ = state.images.of(u, c.Name)
				pod.Generation, pod.Status.ObservedGeneration = 0, 0
			}
		}
	}
}
