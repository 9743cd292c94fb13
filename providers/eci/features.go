package eci

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The limits of the API.
const (
	maxContainers  = 20
	maxVolumes     = 20
	maxFile        = 32 << 10 // of a file in a ConfigFileVolume
	maxFiles       = 90       // in a volume,
	maxVolumeFiles = 60 << 10 // and bytes of them in all
	maxTag         = 128      // characters of a tag's value
	maxTail        = 2000     // lines of a log in one response, which has 1 MB at most
	maxIDs         = 20       // groups in a list of IDs
	maxSpecs       = 5        // in eci-use-specs
	maxWords       = 20       // of a command of ExecContainerCommand,
	maxWord        = 256      // and characters of each
)

// fields are the fields of a pod's spec for which the API has parameters.
var fields = []string{
	"restartPolicy", "hostAliases", "hostname", "setHostnameAsFQDN", "hostnameOverride", "dnsConfig", "shareProcessNamespace",
	"securityContext.runAsUser", "securityContext.runAsGroup", "securityContext.runAsNonRoot", "securityContext.sysctls",
	"initContainers", "-initContainers.stdin", "-initContainers.stdinOnce", "-initContainers.tty",
	"-initContainers.securityContext.runAsGroup", "-initContainers.securityContext.runAsNonRoot", "-initContainers.securityContext.privileged",
	"containers.stdin", "containers.stdinOnce", "containers.tty", "containers.terminationMessagePath", "containers.terminationMessagePolicy",
	"containers.volumeMounts.mountPropagation=HostToContainer",
	"containers.livenessProbe", "-containers.livenessProbe.grpc", "-containers.livenessProbe.httpGet.host", "-containers.livenessProbe.httpGet.httpHeaders",
	"-containers.livenessProbe.tcpSocket.host", "-containers.livenessProbe.terminationGracePeriodSeconds",
	"containers.readinessProbe", "-containers.readinessProbe.grpc", "-containers.readinessProbe.httpGet.host", "-containers.readinessProbe.httpGet.httpHeaders",
	"-containers.readinessProbe.tcpSocket.host", "-containers.readinessProbe.terminationGracePeriodSeconds",
	"containers.lifecycle.postStart", "-containers.lifecycle.postStart.sleep", "containers.lifecycle.preStop", "-containers.lifecycle.preStop.sleep",
	"containers.securityContext.runAsUser", "containers.securityContext.runAsGroup", "containers.securityContext.runAsNonRoot",
	"containers.securityContext.privileged", "containers.securityContext.readOnlyRootFilesystem", "containers.securityContext.capabilities.add",
	"volumes.emptyDir", "volumes.nfs", "volumes.flexVolume", "volumes.persistentVolumeClaim", "volumes.ephemeral",
	"volumes.configMap", "volumes.secret", "volumes.downwardAPI", "volumes.projected",
	"-volumes.projected.sources.clusterTrustBundle", "-volumes.projected.sources.podCertificate",
}

// ignored are fields without which pods run on ECI.
var ignored = []string{
	"runtimeClassName", "containers.ports.hostPort", "containers.ports.hostIP",
	"containers.livenessProbe.terminationGracePeriodSeconds", "containers.readinessProbe.terminationGracePeriodSeconds",
	"securityContext.windowsOptions", "containers.securityContext.windowsOptions", "containers.securityContext.procMount",
}

// check returns what else of a pod ECI does not have.
func check(pod *corev1.Pod) (missing []string) {
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.FlexVolume != nil && !slices.Contains(flexDrivers, v.FlexVolume.Driver) {
			add("volumes[%s].flexVolume.driver %s", v.Name, v.FlexVolume.Driver)
		}
		if v.EmptyDir != nil && strings.HasPrefix(string(v.EmptyDir.Medium), string(corev1.StorageMediumHugePages)) {
			add("volumes[%s].emptyDir.medium %s", v.Name, v.EmptyDir.Medium)
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		for _, sysctl := range s.Sysctls {
			if sysctlParameter(sysctl.Name) == "" {
				add("sysctl %s", sysctl.Name)
			}
		}
	}
	if s := pod.Spec.SecurityContext; s != nil && s.RunAsGroup != nil && len(pod.Spec.InitContainers) > 0 {
		add("securityContext.runAsGroup %d for init container %s", *s.RunAsGroup, pod.Spec.InitContainers[0].Name)
	}
	specs := pod.Annotations[AnnotationInstanceType]
	if n := len(split(specs)); n > maxSpecs {
		add("%d sizes and instance types in the annotation %s, more than %d", n, AnnotationInstanceType, maxSpecs)
	}
	for _, name := range []string{annotationPrefix + "eci-instance-family", annotationPrefix + "eci-instance-generation"} {
		if pod.Annotations[name] != "" {
			add("the annotation %s, for which the API has no parameter: name instance types in %s", name, AnnotationInstanceType)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if s := podgroup.SizeOf(&c.Resources); gpus(s) > 0 && specs == "" {
			add("GPUs for container %s without an instance type that has them (annotation %s)", c.Name, AnnotationInstanceType)
		}
		for _, capability := range ptr.Deref(podspec.SecurityContext(pod, &c).Capabilities, corev1.Capabilities{}).Add {
			if capability != "NET_ADMIN" && capability != "NET_RAW" {
				add("capability %s of container %s: ECI has NET_ADMIN and NET_RAW", capability, c.Name)
			}
		}
		if c.ReadinessProbe != nil && c.ReadinessProbe.SuccessThreshold > 1 {
			add("readinessProbe.successThreshold %d of container %s", c.ReadinessProbe.SuccessThreshold, c.Name)
		}
		for what, port := range namedPorts(&c) {
			if podspec.PortNumber(&c, port) == 0 {
				add("%s of container %s: it has no port %s", what, c.Name, port.String())
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// ignores returns what else of a pod is ignored: the pod's runAsNonRoot in init containers that
// may run as root.
func ignores(pod *corev1.Pod) (ignored []string) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sc := podspec.SecurityContext(pod, c)
		isOfPod := c.SecurityContext == nil || c.SecurityContext.RunAsNonRoot == nil
		if isOfPod && ptr.Deref(sc.RunAsNonRoot, false) && ptr.Deref(sc.RunAsUser, 0) == 0 {
			ignored = append(ignored, fmt.Sprintf("securityContext.runAsNonRoot for init container %s", c.Name))
		}
	}
	return ignored
}

// namedPorts returns the ports of probes and hooks of a container.
func namedPorts(c *corev1.Container) map[string]intstr.IntOrString {
	ports := map[string]intstr.IntOrString{}
	add := func(what string, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) {
		if http != nil {
			ports[what] = http.Port
		}
		if tcp != nil {
			ports[what] = tcp.Port
		}
	}
	for what, probe := range map[string]*corev1.Probe{"readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} {
		if probe != nil {
			add(what, probe.HTTPGet, probe.TCPSocket)
		}
	}
	if l := c.Lifecycle; l != nil {
		for what, hook := range map[string]*corev1.LifecycleHandler{"postStart": l.PostStart, "preStop": l.PreStop} {
			if hook != nil {
				add(what, hook.HTTPGet, hook.TCPSocket)
			}
		}
	}
	return ports
}

// The sysctls that the API has, by parameter: those that are safe to it, and the others.
var (
	safeSysctls  = []string{"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"}
	otherSysctls = []string{"net.", "kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "vm.min_free_kbytes"}
)

// sysctlParameter returns the parameter that a sysctl belongs to; empty if ECI does not
// have it.
func sysctlParameter(name string) string {
	is := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case slices.Contains(safeSysctls, name):
		return "SecurityContext"
	case name != "net.ipv4.tcp_syncookies" && name != "kernel.shm_rmid_forced" && slices.ContainsFunc(otherSysctls, is):
		return "HostSecurityContext"
	}
	return ""
}

// split returns the elements of a list with commas.
func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
