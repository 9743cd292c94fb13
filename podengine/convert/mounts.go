package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mount is something that is mounted in a container: a path of the host, or an
// image.
type Mount struct {
	ContainerPath string
	HostPath      string
	ReadOnly      bool
	// RecursiveReadOnly is what RecursiveReadOnly says.
	RecursiveReadOnly bool
	// SELinuxRelabel gives the files the label of the container.
	SELinuxRelabel bool
	// Propagation is None if nil.
	Propagation *corev1.MountPropagationMode
	// Image is mounted instead of a path of the host (KEP-4639), or a part of it.
	Image        *runtimeapi.ImageSpec
	ImageSubPath string
}

// RecursiveReadOnly reports whether a volume is to be mounted read-only with all
// that is mounted below it (KEP-3857), on a runtime that can do so or cannot.
func RecursiveReadOnly(m *corev1.VolumeMount, supported bool) (bool, error) {
	if m.RecursiveReadOnly == nil {
		return false, nil
	}
	switch mode := *m.RecursiveReadOnly; mode {
	case corev1.RecursiveReadOnlyDisabled:
		return false, nil
	case corev1.RecursiveReadOnlyIfPossible:
		return supported && recursible(m), nil
	case corev1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
		}
		if !recursible(m) {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only, or its mounts propagate", m.Name)
		}
		return true, nil
	default:
		return false, fmt.Errorf("volume %q has an unknown recursive read-only mode %q", m.Name, mode)
	}
}

// recursible: what the CRI asks of a mount that is recursively read-only.
func recursible(m *corev1.VolumeMount) bool {
	return m.ReadOnly && propagation(m.MountPropagation) == runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

// mounts gives each mount of a path the mapping of the pod's user namespace, so
// that its files have the owners in the container that they have on the host.
func mounts(pod *corev1.Pod, o ContainerOptions) []*runtimeapi.Mount {
	mapped := pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers && o.UserNamespace != nil
	list := make([]*runtimeapi.Mount, len(o.Mounts))
	for i, m := range o.Mounts {
		list[i] = &runtimeapi.Mount{
			ContainerPath:     m.ContainerPath,
			HostPath:          m.HostPath,
			Readonly:          m.ReadOnly,
			SelinuxRelabel:    m.SELinuxRelabel,
			Propagation:       propagation(m.Propagation),
			RecursiveReadOnly: m.RecursiveReadOnly,
			Image:             m.Image,
			ImageSubPath:      m.ImageSubPath,
		}
		if mapped && m.Image == nil {
			list[i].UidMappings = o.UserNamespace.Uids
			list[i].GidMappings = o.UserNamespace.Gids
		}
	}
	return list
}

func propagation(mode *corev1.MountPropagationMode) runtimeapi.MountPropagation {
	switch {
	case mode == nil:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	case *mode == corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case *mode == corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}
