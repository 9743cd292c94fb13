package convert

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// sysctls are the pod's, by their names with dots, which runtimes expect.
func sysctls(pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	values := make(map[string]string, len(pod.Spec.SecurityContext.Sysctls))
	for _, sysctl := range pod.Spec.SecurityContext.Sysctls {
		values[dotted(sysctl.Name)] = sysctl.Value
	}
	return values
}

var swapSeparators = strings.NewReplacer(".", "/", "/", ".")

// dotted is the name of a sysctl with dots as separators. By sysctl(8) the first
// dot or slash says which of the two separates; the other one is then a part of a
// name, as in net/ipv4/conf/eth0.1/forwarding.
func dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return swapSeparators.Replace(name)
}
