package translate

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MissingEphemeral returns the ephemeral containers of a home pod that its remote pod does
// not have, and that no earlier remote pod had: their commands must not run again.
func MissingEphemeral(pod, remote *corev1.Pod) []corev1.EphemeralContainer {
	added := addedEphemeral(remote)
	return slices.DeleteFunc(slices.Clone(pod.Spec.EphemeralContainers), func(e corev1.EphemeralContainer) bool { return slices.Contains(added, e.Name) })
}

// EphemeralContainers returns the MissingEphemeral of a home pod, translated for its remote
// pod. The error is about those that are left out: it is an ErrUnresolved.
func (o *Options) EphemeralContainers(pod, remote *corev1.Pod) (missing []corev1.EphemeralContainer, err error) {
	for _, e := range MissingEphemeral(pod, remote) {
		e = *e.DeepCopy()
		c := corev1.Container(e.EphemeralContainerCommon)
		if unresolved := checkResolved(&c); unresolved != nil {
			err = errors.Join(err, unresolved)
			continue
		}
		o.moveEnvironment(pod, &c, containerOf(o.unresolved(pod), c.Name))
		e.EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
		missing = append(missing, e)
	}
	return missing, err
}

// addedEphemeral returns the names of the ephemeral containers that a remote pod has, or
// that earlier ones had.
func addedEphemeral(remote *corev1.Pod) (names []string) {
	if text := remote.Annotations[AnnotationEphemeral]; text != "" {
		names = strings.Split(text, ",")
	}
	for i := range remote.Spec.EphemeralContainers {
		names = append(names, remote.Spec.EphemeralContainers[i].Name)
	}
	for i := range remote.Status.EphemeralContainerStatuses { // which is all that is known of a pod that was lost
		names = append(names, remote.Status.EphemeralContainerStatuses[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// RecordEphemeral records on a remote pod the ephemeral containers of last, which it
// replaces.
func RecordEphemeral(next, last *corev1.Pod) {
	next.Annotations[AnnotationEphemeral] = strings.Join(addedEphemeral(last), ",")
}

// HasEphemeralRecord reports whether it is known which ephemeral containers a remote pod and
// those that it has replaced had: versions before this record kept none.
func HasEphemeralRecord(remote *corev1.Pod) bool {
	_, recorded := remote.Annotations[AnnotationEphemeral]
	_, replaces := remote.Annotations[AnnotationRestarts]
	return recorded || !replaces
}
