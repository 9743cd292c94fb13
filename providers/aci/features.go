package aci

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// fields are the fields of a pod's spec that container groups have.
var fields = []string{
	"restartPolicy", "initContainers", "-initContainers.ports", "-initContainers.resources",
	"volumes.emptyDir", "-volumes.emptyDir.medium", "-volumes.emptyDir.sizeLimit", "volumes.gitRepo", "volumes.azureFile", "volumes.csi", "volumes.persistentVolumeClaim", "volumes.ephemeral",
	"volumes.configMap", "-volumes.configMap.defaultMode", "volumes.configMap.defaultMode=420", "-volumes.configMap.items.mode",
	"volumes.secret", "-volumes.secret.defaultMode", "volumes.secret.defaultMode=420", "-volumes.secret.items.mode",
	"volumes.downwardAPI", "-volumes.downwardAPI.defaultMode", "volumes.downwardAPI.defaultMode=420", "-volumes.downwardAPI.items.mode",
	"volumes.projected", "-volumes.projected.defaultMode", "volumes.projected.defaultMode=420",
	"containers.livenessProbe.exec", "containers.livenessProbe.httpGet", "-containers.livenessProbe.httpGet.host",
	"containers.livenessProbe.initialDelaySeconds", "containers.livenessProbe.periodSeconds", "containers.livenessProbe.timeoutSeconds", "containers.livenessProbe.failureThreshold", "containers.livenessProbe.successThreshold",
	"containers.readinessProbe.exec", "containers.readinessProbe.httpGet", "-containers.readinessProbe.httpGet.host",
	"containers.readinessProbe.initialDelaySeconds", "containers.readinessProbe.periodSeconds", "containers.readinessProbe.timeoutSeconds", "containers.readinessProbe.failureThreshold", "containers.readinessProbe.successThreshold",
	"securityContext.runAsUser", "securityContext.runAsGroup",
	"containers.securityContext.runAsUser", "containers.securityContext.runAsGroup", "containers.securityContext.privileged",
	"containers.securityContext.allowPrivilegeEscalation", "containers.securityContext.capabilities",
	"-containers.workingDir", "-containers.volumeMounts.subPath",
	"-containers.env.valueFrom.fieldRef.fieldPath=status.podIP", "-containers.env.valueFrom.fieldRef.fieldPath=status.podIPs",
	"-containers.env.valueFrom.fieldRef.fieldPath=status.hostIP", "-containers.env.valueFrom.fieldRef.fieldPath=status.hostIPs",
}

// ignored are fields without which pods run all the same.
var ignored = []string{
	"initContainers.ports", "initContainers.resources", "volumes.emptyDir.sizeLimit",
	"volumes.configMap.defaultMode", "volumes.configMap.items.mode", "volumes.secret.defaultMode", "volumes.secret.items.mode",
	"volumes.downwardAPI.defaultMode", "volumes.downwardAPI.items.mode", "volumes.projected.defaultMode",
}

// What Azure takes as names.
var (
	nameRule     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	variableRule = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	serviceRule  = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?)$`) // those that pods get of services
	labelRule    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{3,61}[A-Za-z0-9]$`)
	zoneRule     = regexp.MustCompile(`^[1-9]$`)
)

// maxPublicPorts is how many ports an address may have.
const maxPublicPorts = 5

// check returns what else of a pod container groups do not have.
func (b *backend) check(pod *corev1.Pod) (missing []string) {
	lack := func(lacks bool, format string, args ...any) {
		if lacks {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	ports := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		lack(!nameRule.MatchString(c.Name) || strings.Contains(c.Name, "--"), "containers[%s]: a name with two hyphens in a row", c.Name)
		lack(len(c.Command) == 0 && len(c.Args) > 0, "containers[%s].args without command: write the image's entry point as command", c.Name)
		for _, v := range c.Env {
			lack(!variableRule.MatchString(v.Name) && !serviceRule.MatchString(v.Name), "containers[%s].env[%q]: a name of other than letters, digits and underscores, or longer than 63", c.Name, v.Name)
		}
		for _, p := range c.Ports {
			lack(p.Protocol == corev1.ProtocolSCTP, "containers[%s].ports[%d].protocol SCTP", c.Name, p.ContainerPort)
		}
		for name := range c.Resources.Limits {
			lack(!slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, gpuResource}, name), "containers[%s].resources.limits[%s]", c.Name, name)
		}
		if gpus := c.Resources.Limits[gpuResource]; !gpus.IsZero() {
			lack(!slices.Contains([]int64{1, 2, 4}, gpus.Value()), "containers[%s].resources: %d GPUs, and not 1, 2 or 4", c.Name, gpus.Value())
			lack(b.cfg.SubnetName != "", "containers[%s].resources: GPUs in a subnet", c.Name)
		}
		if s := c.SecurityContext; s != nil {
			lack(valueOf(s.RunAsUser) > math.MaxInt32 || valueOf(s.RunAsGroup) > math.MaxInt32, "containers[%s].securityContext: an ID beyond %d", c.Name, math.MaxInt32)
		}
		for what, p := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe} {
			lack(p != nil && p.HTTPGet != nil && podspec.PortNumber(&c, p.HTTPGet.Port) == 0, "containers[%s].%s.httpGet.port: there is no port of that name", c.Name, what)
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			ports[fmt.Sprint(p.Protocol, p.ContainerPort)] = true
		}
	}
	lack(b.cfg.SubnetName == "" && len(ports) > maxPublicPorts, "containers.ports: %d ports, more than %d of a public address", len(ports), maxPublicPorts)
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.CSI != nil {
			lack(v.CSI.Driver != fileDriver, "volumes[%s].csi.driver %s: only %s", v.Name, v.CSI.Driver, fileDriver)
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		lack(valueOf(s.RunAsUser) > math.MaxInt32 || valueOf(s.RunAsGroup) > math.MaxInt32, "securityContext: an ID beyond %d", math.MaxInt32)
	}
	return append(missing, b.wrongAnnotations(pod)...)
}

// wrongAnnotations returns annotations whose values Azure does not have.
func (b *backend) wrongAnnotations(pod *corev1.Pod) (wrong []string) {
	oneOf := func(key string, values ...string) {
		if value := pod.Annotations[key]; value != "" && !slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, value) }) {
			wrong = append(wrong, fmt.Sprintf("annotation %s: %q is none of %s", key, value, strings.Join(values, ", ")))
		}
	}
	oneOf(annotationSKU, "Standard", "Confidential")
	oneOf(annotationGPU, "V100", "P100", "K80")
	if value := pod.Annotations[annotationPriority]; value != "" && value != "Regular" && value != "Spot" {
		wrong = append(wrong, fmt.Sprintf("annotation %s: %q is neither Regular nor Spot", annotationPriority, value))
	}
	if label := pod.Annotations[annotationDNSLabel]; label != "" && !labelRule.MatchString(label) {
		wrong = append(wrong, fmt.Sprintf("annotation %s: %q is no DNS label of 5 to 63 characters", annotationDNSLabel, label))
	}
	for _, zone := range zonesOf(pod, nil) {
		if !zoneRule.MatchString(zone) {
			wrong = append(wrong, fmt.Sprintf("annotation %s: %q is not a zone such as 1", annotationZones, zone))
		}
	}
	return wrong
}
