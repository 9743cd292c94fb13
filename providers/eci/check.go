package eci

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Check returns an error that names all that ECI cannot do of a pod. It is
// permanent, and its text, which the controller makes an event of, begins with
// ProviderNotSupported. It looks at nothing but the pod.
func Check(pod *corev1.Pod) error {
	var found problems
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		found.add("pods of a DaemonSet, such as %s, which are about the machine of a node", owner.Name)
	}
	for what, wanted := range map[string]bool{
		"hostNetwork": pod.Spec.HostNetwork, "hostPID": pod.Spec.HostPID, "hostIPC": pod.Spec.HostIPC,
	} {
		if wanted {
			found.add("%s", what)
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			found.add("init container %s with restartPolicy Always", c.Name)
		}
		found.addContainer(c)
	}
	for i := range pod.Spec.Containers {
		found.addContainer(&pod.Spec.Containers[i])
	}
	slices.Sort(found)
	volumes := checkVolumes(pod)
	if err := found.err(); err != nil && volumes != nil {
		return fmt.Errorf("%w; %w", err, volumes) // of one line, as events are
	} else if err != nil {
		return err
	}
	return volumes
}

// problems are what ECI cannot do.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return errdefs.AsPermanent(errors.New("ProviderNotSupported: " + strings.Join(p, "; ")))
}

func (p *problems) addContainer(c *corev1.Container) {
	if c.StartupProbe != nil {
		p.add("startupProbe of container %s", c.Name)
	}
	for kind, probe := range map[string]*corev1.Probe{"readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} {
		if probe == nil {
			continue
		}
		if probe.GRPC != nil {
			p.add("%s of container %s by gRPC", kind, c.Name)
		}
		if probe.HTTPGet != nil && portNumber(c, probe.HTTPGet.Port) == 0 || probe.TCPSocket != nil && portNumber(c, probe.TCPSocket.Port) == 0 {
			p.add("%s of container %s: it has no port of that name", kind, c.Name)
		}
	}
	if len(c.VolumeDevices) > 0 {
		p.add("block devices in container %s", c.Name)
	}
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].SubPathExpr != "" {
			p.add("subPathExpr in container %s", c.Name)
		}
	}
	if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
		p.add("privileged container %s", c.Name)
	}
}

// portNumber is the number of a container's port, 0 if there is none.
func portNumber(c *corev1.Container, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for i := range c.Ports {
		if c.Ports[i].Name == port.StrVal {
			return c.Ports[i].ContainerPort
		}
	}
	return 0
}

// flexDrivers are those of flexVolumes that ECI has.
var flexDrivers = []string{"alicloud/disk", "alicloud/nas", "alicloud/oss"}

// checkVolumes names all volumes that ECI does not have.
func checkVolumes(pod *corev1.Pod) error {
	others := pod.DeepCopy()
	others.Spec.Volumes = nil
	for _, v := range pod.Spec.Volumes {
		if v.NFS == nil && !(v.FlexVolume != nil && slices.Contains(flexDrivers, v.FlexVolume.Driver)) {
			others.Spec.Volumes = append(others.Spec.Volumes, v)
		}
	}
	return volume.Check(others, volume.Support{Tokens: true})
}
