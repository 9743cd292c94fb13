package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// portMappings are the host ports of the containers and sidecars. On the host's
// network there is nothing to map; ports without a host port need no mapping.
func portMappings(pod *corev1.Pod) (mappings []*runtimeapi.PortMapping) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.IsSidecar(c) {
			mappings = append(mappings, hostPorts(c)...)
		}
	}
	for i := range pod.Spec.Containers {
		mappings = append(mappings, hostPorts(&pod.Spec.Containers[i])...)
	}
	return mappings
}

func hostPorts(c *corev1.Container) (mappings []*runtimeapi.PortMapping) {
	for _, port := range c.Ports {
		if port.HostPort == 0 {
			continue
		}
		mappings = append(mappings, &runtimeapi.PortMapping{
			Protocol:      protocol(port.Protocol),
			ContainerPort: port.ContainerPort,
			HostPort:      port.HostPort,
			HostIp:        port.HostIP,
		})
	}
	return mappings
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}
