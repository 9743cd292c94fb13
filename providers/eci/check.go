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

// Check returns an error that names all features of a pod that ECI does not have. It is
// permanent, and its text, which the controller records as an event, begins with
// ProviderNotSupported. It reads nothing but the pod.
func Check(pod *corev1.Pod) error {
	var found problems
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		found.add("pods of a DaemonSet, such as %s", owner.Name)
	}
	for what, wanted := range map[string]bool{
		"hostNetwork": pod.Spec.HostNetwork, "hostPID": pod.Spec.HostPID, "hostIPC": pod.Spec.HostIPC,
		"shareProcessNamespace": pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace,
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
		found.addContainer(pod, c)
	}
	for i := range pod.Spec.Containers {
		found.addContainer(pod, &pod.Spec.Containers[i])
	}
	slices.Sort(found)
	volumes := checkVolumes(pod)
	if err := found.err(); err != nil && volumes != nil {
		return fmt.Errorf("%w; %w", err, volumes) // in one line, as events are
	} else if err != nil {
		return err
	}
	return volumes
}

// problems are the features that ECI does not have.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return errdefs.AsPermanent(errors.New("ProviderNotSupported: " + strings.Join(p, "; ")))
}

func (p *problems) addContainer(pod *corev1.Pod, c *corev1.Container) {
	p.addProbes(c)
	p.addHooks(c)
	if c.RestartPolicy != nil && !podspec.IsSidecar(c) || len(c.RestartPolicyRules) > 0 {
		p.add("a restartPolicy of container %s", c.Name)
	}
	if len(c.VolumeDevices) > 0 {
		p.add("block devices in container %s", c.Name)
	}
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].SubPathExpr != "" {
			p.add("subPathExpr in container %s", c.Name)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
			p.add("variable %s of container %s from a file", c.Env[i].Name, c.Name)
		}
	}
	if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
		p.add("privileged container %s", c.Name)
	}
	if gpus(c) != "" && pod.Annotations[AnnotationInstanceType] == "" {
		p.add("GPUs for container %s without an instance type that has them (annotation %s)", c.Name, AnnotationInstanceType)
	}
}

// addProbes adds what the API has no parameter for: probes that would be sent
// elsewhere, or answered otherwise, than the pod specifies.
func (p *problems) addProbes(c *corev1.Container) {
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
		http, tcp := probe.HTTPGet, probe.TCPSocket
		if http != nil && portNumber(c, http.Port) == 0 || tcp != nil && portNumber(c, tcp.Port) == 0 {
			p.add("%s of container %s: it has no port of that name", kind, c.Name)
		}
		if http != nil && http.Host != "" || tcp != nil && tcp.Host != "" {
			p.add("%s of container %s of another host", kind, c.Name)
		}
		if http != nil && len(http.HTTPHeaders) > 0 {
			p.add("%s of container %s with httpHeaders", kind, c.Name)
		}
	}
}

// addHooks adds what the API has no parameter for.
func (p *problems) addHooks(c *corev1.Container) {
	if c.Lifecycle == nil {
		return
	}
	for kind, hook := range map[string]*corev1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
		if hook == nil {
			continue
		}
		if hook.Sleep != nil {
			p.add("%s of container %s that sleeps", kind, c.Name)
		}
		if hook.HTTPGet != nil && portNumber(c, hook.HTTPGet.Port) == 0 || hook.TCPSocket != nil && portNumber(c, hook.TCPSocket.Port) == 0 {
			p.add("%s of container %s: it has no port of that name", kind, c.Name)
		}
	}
	if c.Lifecycle.StopSignal != nil {
		p.add("stopSignal of container %s", c.Name)
	}
}

// portNumber returns the number of a container's port, or 0 if there is none of that
// name.
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

// flexDrivers are the flexVolume drivers that ECI has.
var flexDrivers = []string{"alicloud/disk", "alicloud/nas", "alicloud/oss"}

// checkVolumes returns an error that names all volumes that ECI does not have.
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
