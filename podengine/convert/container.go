package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerOptions is what the configuration of a container needs besides the pod.
type ContainerOptions struct {
	// Attempt counts the starts of the container from 0: its restart count.
	Attempt uint32
	// ImageRef is the image as the runtime knows it; the container's if empty.
	ImageRef string
	// Image is the runtime's status of the image, for the user that it names.
	// Without it the image counts as one that runs as root.
	Image *runtimeapi.Image
	// Env is the whole environment, resolved.
	Env []corev1.EnvVar
	// Mounts are all that is mounted, /etc/hosts and the termination log too.
	Mounts []Mount
	// Devices and CDIDevices are what was allocated for the container.
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Annotations are set besides those of this package.
	Annotations map[string]string
	// TargetID is the runtime's ID of the container whose processes an ephemeral
	// container sees: that of its targetContainerName.
	TargetID string
	// UserNamespace is that of the sandbox: see SandboxOptions.
	UserNamespace *runtimeapi.UserNamespace
}

// Container is the configuration of one of the pod's containers. References $(VAR)
// in command and args of c must have been replaced, but the image must be that of
// the spec, of which HashContainer is kept. An ephemeral container is converted
// with corev1.Container(e.EphemeralContainerCommon).
//
// It fails if the container must not, or cannot, run as it is, in words for a
// person; the kubelet's reason for that is CreateContainerConfigError.
func (n Node) Container(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) (*runtimeapi.ContainerConfig, error) {
	security, err := n.containerSecurity(pod, c, o)
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(c)
	if err != nil {
		return nil, err
	}
	annotations, err := n.containerAnnotations(pod, c, o)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: o.Attempt},
		Image:       imageSpec(c, o),
		Command:     c.Command,
		Args:        c.Args,
		WorkingDir:  c.WorkingDir,
		Envs:        keyValues(o.Env),
		Mounts:      mounts(pod, o),
		Devices:     o.Devices,
		CDIDevices:  o.CDIDevices,
		Labels:      containerLabels(pod, c),
		Annotations: annotations,
		LogPath:     LogPath(c.Name, o.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       n.containerResources(pod, c),
			SecurityContext: security,
		},
		StopSignal: signal,
	}, nil
}

func imageSpec(c *corev1.Container, o ContainerOptions) *runtimeapi.ImageSpec {
	ref := o.ImageRef
	if ref == "" {
		ref = c.Image
	}
	return &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: c.Image}
}

func keyValues(env []corev1.EnvVar) []*runtimeapi.KeyValue {
	list := make([]*runtimeapi.KeyValue, len(env))
	for i, v := range env {
		list[i] = &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)}
	}
	return list
}
