package podspec

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Hosts is the content of /etc/hosts in the containers of a pod, in the kubelet's
// format: this machine, then the pod's addresses with its FQDN and host name,
// then spec.hostAliases. For a pod on the host's network it is hostFile, the
// host's own, with the aliases.
//
// See https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/.
func Hosts(pod *corev1.Pod, podIPs []string, clusterDomain string, hostFile []byte) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(hostFile)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n")
		b.WriteString(localHosts)
		writePodHosts(&b, pod, podIPs, clusterDomain)
	}
	writeAliases(&b, pod.Spec.HostAliases)
	return b.Bytes()
}

const localHosts = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\n" +
	"fe00::1\tip6-allnodes\n" +
	"fe00::2\tip6-allrouters\n"

func writePodHosts(b *bytes.Buffer, pod *corev1.Pod, podIPs []string, clusterDomain string) {
	names := Hostname(pod)
	if fqdn := FQDN(pod, clusterDomain); fqdn != names {
		names = fqdn + "\t" + names // the first name is the canonical one: hosts(5)
	}
	for _, ip := range podIPs {
		fmt.Fprintf(b, "%s\t%s\n", ip, names)
	}
}

func writeAliases(b *bytes.Buffer, aliases []corev1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, alias := range aliases {
		fmt.Fprintf(b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
}
