package podenv

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
)

// Field returns the value of a fieldRef of pod, and whether it is known by now.
// It is what a downward API volume shows, too.
func Field(pod *corev1.Pod, path string, opts Options) (value string, known bool, err error) {
	return (&resolver{pod: pod, opts: opts}).field(path)
}

// Resource returns the value of a resourceFieldRef that names its container, as
// those of volumes must.
func Resource(pod *corev1.Pod, ref *corev1.ResourceFieldSelector, opts Options) (string, error) {
	if ref.ContainerName == "" {
		return "", errors.New("a resourceFieldRef of a volume needs a containerName")
	}
	return (&resolver{pod: pod, opts: opts}).resource(&corev1.Container{}, ref)
}
