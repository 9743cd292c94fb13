package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PodName names a pod as a kubelet does in errors and events:
// NAME_NAMESPACE(UID).
func PodName(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
