package azurebatch

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// fields are the fields of a pod's spec that tasks have. A task ends, nobody reaches it, and
// nothing asks how it is: there are neither Always nor ports nor probes.
var fields = []string{
	"restartPolicy=Never", "restartPolicy=OnFailure", "initContainers", "hostname", "hostAliases", "dnsConfig",
	"volumes.emptyDir", "-volumes.emptyDir.medium", "volumes.configMap", "volumes.secret", "volumes.downwardAPI", "volumes.projected", "volumes.hostPath",
	"securityContext.runAsUser", "securityContext.runAsGroup", "containers.securityContext.runAsUser", "containers.securityContext.runAsGroup",
	"containers.securityContext.readOnlyRootFilesystem", "containers.securityContext.capabilities", "containers.securityContext.allowPrivilegeEscalation",
	"-containers.ports",
	"-containers.env.valueFrom.fieldRef.fieldPath=status.podIP", "-containers.env.valueFrom.fieldRef.fieldPath=status.podIPs",
	"-containers.env.valueFrom.fieldRef.fieldPath=status.hostIP", "-containers.env.valueFrom.fieldRef.fieldPath=status.hostIPs",
}

// gpu is the resource of Nvidia's device plugin.
const gpu corev1.ResourceName = "nvidia.com/gpu"

// maxGPUs is more GPUs than a machine of Azure has.
const maxGPUs = 64

// check returns what else of a pod cannot be run.
func check(pod *corev1.Pod) (missing []string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.HostPath != nil && strings.Contains(v.HostPath.Path, ":") {
			missing = append(missing, fmt.Sprintf("volumes[%s].hostPath.path with a colon", v.Name))
		}
		if v.HostPath == nil || v.HostPath.Type == nil {
			continue
		}
		if kind := *v.HostPath.Type; !slices.Contains([]corev1.HostPathType{corev1.HostPathUnset, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate}, kind) {
			missing = append(missing, fmt.Sprintf("volumes[%s].hostPath.type %s", v.Name, kind))
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !imageRef.MatchString(c.Image) { // Docker would take a word that begins with a hyphen as an option
			missing = append(missing, fmt.Sprintf("containers[%s].image that is no name of an image", c.Name))
		}
		for _, m := range c.VolumeMounts {
			if strings.Contains(m.MountPath+m.SubPath, ":") {
				missing = append(missing, fmt.Sprintf("containers[%s].volumeMounts[%s] with a colon in a path", c.Name, m.Name))
			}
		}
		if gpus := c.Resources.Limits[gpu]; gpus.CmpInt64(maxGPUs) > 0 {
			missing = append(missing, fmt.Sprintf("containers[%s].resources.limits[%s] of more than %d", c.Name, gpu, maxGPUs))
		}
		for name := range c.Resources.Limits {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && name != gpu {
				missing = append(missing, fmt.Sprintf("containers[%s].resources.limits[%s]", c.Name, name))
			}
		}
	}
	return missing
}
