package podspec

import corev1 "k8s.io/api/core/v1"

// SecurityContext returns the security context of a container, with what its pod's says for
// the fields that both have and the container's does not set.
//
// See https://kubernetes.io/docs/tasks/configure-pod-container/security-context/.
func SecurityContext(pod *corev1.Pod, c *corev1.Container) corev1.SecurityContext {
	var sc corev1.SecurityContext
	if c.SecurityContext != nil {
		sc = *c.SecurityContext
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return sc
	}
	inherit(&sc.SELinuxOptions, p.SELinuxOptions)
	inherit(&sc.RunAsUser, p.RunAsUser)
	inherit(&sc.RunAsGroup, p.RunAsGroup)
	inherit(&sc.RunAsNonRoot, p.RunAsNonRoot)
	inherit(&sc.SeccompProfile, p.SeccompProfile)
	return sc
}

func inherit[T any](field **T, fromPod *T) {
	if *field == nil {
		*field = fromPod
	}
}
