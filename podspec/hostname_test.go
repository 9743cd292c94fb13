package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 70)
	for _, test := range []struct {
		what                   string
		name                   string
		spec                   corev1.PodSpec
		hostname, fqdn, kernel string
		err                    string
	}{
		{what: "the pod's name", name: "web-0",
			hostname: "web-0", fqdn: "web-0", kernel: "web-0"},
		{what: "hostname before the pod's name", name: "web-0", spec: corev1.PodSpec{Hostname: "h"},
			hostname: "h", fqdn: "h", kernel: "h"},
		{what: "a subdomain gives a domain", name: "web-0", spec: corev1.PodSpec{Subdomain: "sub"},
			hostname: "web-0", fqdn: "web-0.sub.ns.svc.cluster.local", kernel: "web-0"},
		{what: "setHostnameAsFQDN (KEP-1797)", name: "web-0",
			spec:     corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: new(true)},
			hostname: "web-0", fqdn: "web-0.sub.ns.svc.cluster.local", kernel: "web-0.sub.ns.svc.cluster.local"},
		{what: "setHostnameAsFQDN without an FQDN has no effect", name: "web-0",
			spec:     corev1.PodSpec{SetHostnameAsFQDN: new(true)},
			hostname: "web-0", fqdn: "web-0", kernel: "web-0"},
		{what: "an FQDN of 64 characters", name: "web-0",
			spec:     corev1.PodSpec{Subdomain: strings.Repeat("s", 37), SetHostnameAsFQDN: new(true)},
			hostname: "web-0", fqdn: "web-0." + strings.Repeat("s", 37) + ".ns.svc.cluster.local", kernel: "web-0." + strings.Repeat("s", 37) + ".ns.svc.cluster.local"},
		{what: "an FQDN longer than the kernel takes", name: "web-0",
			spec:     corev1.PodSpec{Subdomain: strings.Repeat("s", 38), SetHostnameAsFQDN: new(true)},
			hostname: "web-0", fqdn: "web-0." + strings.Repeat("s", 38) + ".ns.svc.cluster.local",
			err: "failed to construct FQDN from Pod hostname and cluster domain, FQDN web-0." + strings.Repeat("s", 38) + ".ns.svc.cluster.local is too long (64 characters is the max, 65 characters requested)"},
		{what: "63 characters stay", name: long[:63],
			hostname: long[:63], fqdn: long[:63], kernel: long[:63]},
		{what: "cut at 63", name: long,
			hostname: long[:63], fqdn: long[:63], kernel: long[:63]},
		{what: "cut where no label ends", name: long[:60] + "-.-xyz",
			hostname: long[:60], fqdn: long[:60], kernel: long[:60]},
		{what: "hostnameOverride before all (KEP-4762)", name: "web-0",
			spec:     corev1.PodSpec{Hostname: "h", Subdomain: "sub", HostnameOverride: new("over.example.com")},
			hostname: "over.example.com", fqdn: "over.example.com", kernel: "over.example.com"},
		{what: "an empty hostnameOverride is none", name: "web-0",
			spec:     corev1.PodSpec{Subdomain: "sub", HostnameOverride: new("")},
			hostname: "web-0", fqdn: "web-0.sub.ns.svc.cluster.local", kernel: "web-0"},
		{what: "hostnameOverride may have 64 characters", name: "web-0",
			spec:     corev1.PodSpec{HostnameOverride: new(long[:64])},
			hostname: long[:64], fqdn: long[:64], kernel: long[:64]},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: test.name}, Spec: test.spec}
			if got := Hostname(pod); got != test.hostname {
				t.Errorf("Hostname: %q, want %q", got, test.hostname)
			}
			if got := FQDN(pod, "cluster.local"); got != test.fqdn {
				t.Errorf("FQDN: %q, want %q", got, test.fqdn)
			}
			got, err := KernelHostname(pod, "cluster.local")
			if text := errorText(err); got != test.kernel || text != test.err {
				t.Errorf("KernelHostname: %q, error %q, want %q, error %q", got, text, test.kernel, test.err)
			}
		})
	}
}

func TestDomainWithoutClusterDomain(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Subdomain: "sub"}}
	if got := Domain(pod, ""); got != "sub.ns.svc" {
		t.Errorf("got %q", got)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
