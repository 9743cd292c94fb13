package probe

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// expandCommand replaces the references $(NAME) in a probe's command by those
// variables of the container that are plain values, as a kubelet does, which
// knows no other variables at this time.
func expandCommand(command []string, env []corev1.EnvVar) []string {
	expanded := make([]string, len(command))
	for i, arg := range command {
		expanded[i] = podenv.Expand(arg, env)
	}
	return expanded
}
