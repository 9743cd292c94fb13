package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxLabel is the length of a DNS label (RFC 1123).
	maxLabel = 63
	// maxNodename is what Linux takes for a host name (struct utsname).
	maxNodename = 64
)

// Hostname is the host name of a pod, without its domain: spec.hostnameOverride
// (KEP-4762), else spec.hostname, else the pod's name, of which only as much is
// taken as a DNS label may have. A pod on the host's network has the host's name
// instead, which is not known here.
func Hostname(pod *corev1.Pod) string {
	if name, ok := overridden(pod); ok {
		return name
	}
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	if len(name) > maxLabel {
		// What is cut must not end in what no label ends in.
		name = strings.TrimRight(name[:maxLabel], "-.")
	}
	return name
}

// Domain is the DNS domain of a pod with a subdomain,
// SUBDOMAIN.NAMESPACE.svc.CLUSTERDOMAIN, and else empty. A host name that is
// overridden has none: the field takes precedence over spec.subdomain.
func Domain(pod *corev1.Pod, clusterDomain string) string {
	if _, ok := overridden(pod); ok || pod.Spec.Subdomain == "" {
		return ""
	}
	return strings.TrimSuffix(pod.Spec.Subdomain+"."+pod.Namespace+".svc."+clusterDomain, ".")
}

// FQDN is the fully qualified domain name of a pod, or its host name if it has
// no domain.
func FQDN(pod *corev1.Pod, clusterDomain string) string {
	if domain := Domain(pod, clusterDomain); domain != "" {
		return Hostname(pod) + "." + domain
	}
	return Hostname(pod)
}

// KernelHostname is what hostname(1) shows in the pod: the host name, or with
// spec.setHostnameAsFQDN the FQDN (KEP-1797), which must then be one that the
// kernel takes.
//
// See https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/.
func KernelHostname(pod *corev1.Pod, clusterDomain string) (string, error) {
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return Hostname(pod), nil
	}
	fqdn := FQDN(pod, clusterDomain)
	if len(fqdn) > maxNodename {
		return "", fmt.Errorf("failed to construct FQDN from Pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxNodename, len(fqdn))
	}
	return fqdn, nil
}

func overridden(pod *corev1.Pod) (string, bool) {
	if name := pod.Spec.HostnameOverride; name != nil && *name != "" {
		return *name, true
	}
	return "", false
}
