package mock

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// kind says when a container runs.
type kind string

const (
	kindInit      kind = "init"    // before the others, to its end
	kindSidecar   kind = "sidecar" // an init container that goes on
	kindMain      kind = "main"
	kindEphemeral kind = "ephemeral"
)

func initKind(c *corev1.Container) kind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return kindSidecar
	}
	return kindInit
}

// container finds a container of the pod by its name; an empty one stands for
// the only container.
func (h *held) container(name string) (*container, error) {
	if main := h.pod.of(kindMain); name == "" && len(main) == 1 {
		return main[0], nil
	}
	for i := range h.pod.containers {
		if c := &h.pod.containers[i]; c.name == name {
			return c, nil
		}
	}
	return nil, errdefs.NotFoundf("container %q not found in pod %q", name, h.pod.name)
}

// instance returns the current run of a container of the given kind.
func (h *held) instance(k kind, name string) instance {
	switch k {
	case kindInit:
		return instance{started: h.first, ended: h.first}
	case kindEphemeral:
		i := instance{started: h.ephemeral[name]}
		if h.stage == stageEnded {
			i.ended, i.code = h.current.ended, h.current.code
		}
		return i
	}
	return h.current
}

// lastInstance returns the run before that, if there is one.
func (h *held) lastInstance(k kind) *instance {
	if k == kindInit || k == kindEphemeral {
		return nil
	}
	return h.last
}
