package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// SandboxOptions is what the configuration of a sandbox needs besides the pod.
type SandboxOptions struct {
	// Attempt counts the sandboxes of the pod from 0.
	Attempt uint32
	// DNS is the pod's resolv.conf: see podspec.DNS.
	DNS podspec.ResolvConf
	// CgroupParent of the sandbox and the containers; the runtime's default if empty.
	CgroupParent string
	// UserNamespace has the mappings for a pod with hostUsers: false (KEP-127).
	// Without them such a pod is refused.
	UserNamespace *runtimeapi.UserNamespace
}

// Sandbox is the configuration of a pod's sandbox. It fails if the pod cannot run
// as it is, in words for a person.
func (n Node) Sandbox(pod *corev1.Pod, o SandboxOptions) (*runtimeapi.PodSandboxConfig, error) {
	hostname, err := n.hostname(pod)
	if err != nil {
		return nil, err
	}
	security, err := sandboxSecurity(pod, o.UserNamespace)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      pod.Name,
			Uid:       string(pod.UID),
			Namespace: pod.Namespace,
			Attempt:   o.Attempt,
		},
		Hostname:     hostname,
		LogDirectory: n.LogDirectory(pod),
		DnsConfig: &runtimeapi.DNSConfig{
			Servers:  o.DNS.Nameservers,
			Searches: o.DNS.Searches,
			Options:  o.DNS.Options,
		},
		PortMappings: portMappings(pod),
		Labels:       sandboxLabels(pod),
		Annotations:  n.sandboxAnnotations(pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    o.CgroupParent,
			SecurityContext: security,
			Sysctls:         sysctls(pod),
			Overhead:        n.overhead(pod),
			Resources:       n.sandboxResources(pod),
		},
	}, nil
}

// hostname is empty on the host's network, where the host's stays.
func (n Node) hostname(pod *corev1.Pod) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	return podspec.KernelHostname(pod, n.ClusterDomain)
}
