package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// expandProbes expands the commands of probes as the kubelet does, which knows the plain
// values in a container's spec alone: they are moved to a Secret. Those of hooks it takes
// as they are. original is the home pod as it is unresolved; if it is nil, the values
// that are plain there are unknown, and others must not come to the spec.
func (o *Options) expandProbes(original *corev1.Pod, spec *corev1.PodSpec) {
	if original == nil || o.Expand == nil {
		return
	}
	plain := map[string][]corev1.EnvVar{}
	for _, containers := range [][]corev1.Container{original.Spec.InitContainers, original.Spec.Containers} {
		for i := range containers {
			plain[containers[i].Name] = plainValues(containers[i].Env)
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if probe != nil && probe.Exec != nil {
					o.expandCommand(probe.Exec.Command, plain[c.Name])
				}
			}
		}
	}
}

// plainValues returns variables as the kubelet has them for probes: those from elsewhere
// are empty.
func plainValues(env []corev1.EnvVar) []corev1.EnvVar {
	plain := slices.Clone(env)
	for i := range plain {
		plain[i].ValueFrom = nil
	}
	return plain
}

func (o *Options) expandCommand(command []string, env []corev1.EnvVar) {
	for i := range command {
		command[i] = escape(o.Expand(command[i], env), nil)
	}
}
