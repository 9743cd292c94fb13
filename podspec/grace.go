package podspec

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// GracePeriod is how long a container may take to end between the request to
// stop and the kill. probe is the liveness or startup probe whose failure is the
// cause, else nil.
//
// The period of the deletion, if the pod is being deleted, counts before all; then
// terminationGracePeriodSeconds of the probe (KEP-2238); then that of the pod,
// whose default is 30 seconds. Zero means to kill at once.
func GracePeriod(pod *corev1.Pod, probe *corev1.Probe) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case probe != nil && probe.TerminationGracePeriodSeconds != nil:
		seconds = *probe.TerminationGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		seconds = 1 // what the API server makes of a negative period
	}
	return time.Duration(seconds) * time.Second
}
