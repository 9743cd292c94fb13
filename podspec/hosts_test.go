package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const managed = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"

// The format is shown in
// https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/.
func TestHosts(t *testing.T) {
	aliases := []corev1.HostAlias{
		{IP: "127.0.0.1", Hostnames: []string{"foo.local", "bar.local"}},
		{IP: "10.1.2.3", Hostnames: []string{"foo.remote"}},
	}
	const aliasLines = "\n# Entries added by HostAliases.\n127.0.0.1\tfoo.local\tbar.local\n10.1.2.3\tfoo.remote\n"
	for _, test := range []struct {
		what string
		spec corev1.PodSpec
		ips  []string
		want string
	}{
		{"one address", corev1.PodSpec{}, []string{"10.200.0.4"}, managed + "10.200.0.4\tnginx\n"},
		{"two addresses", corev1.PodSpec{}, []string{"10.200.0.4", "fd00::4"}, managed + "10.200.0.4\tnginx\nfd00::4\tnginx\n"},
		{"no address yet", corev1.PodSpec{}, nil, managed},
		{"an FQDN is the canonical name", corev1.PodSpec{Hostname: "h", Subdomain: "sub"}, []string{"10.0.0.1"},
			managed + "10.0.0.1\th.sub.ns.svc.cluster.local\th\n"},
		{"setHostnameAsFQDN changes nothing here", corev1.PodSpec{Hostname: "h", Subdomain: "sub", SetHostnameAsFQDN: new(true)}, []string{"10.0.0.1"},
			managed + "10.0.0.1\th.sub.ns.svc.cluster.local\th\n"},
		{"hostnameOverride (KEP-4762)", corev1.PodSpec{Subdomain: "sub", HostnameOverride: new("a.b")}, []string{"10.0.0.1"},
			managed + "10.0.0.1\ta.b\n"},
		{"aliases", corev1.PodSpec{HostAliases: aliases}, []string{"10.200.0.4"}, managed + "10.200.0.4\tnginx\n" + aliasLines},
		{"host network", corev1.PodSpec{HostNetwork: true}, []string{"192.0.2.1"},
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"},
		{"host network with aliases", corev1.PodSpec{HostNetwork: true, HostAliases: aliases}, []string{"192.0.2.1"},
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n" + aliasLines},
	} {
		t.Run(test.what, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nginx"}, Spec: test.spec}
			got := string(Hosts(pod, test.ips, "cluster.local", []byte("127.0.0.1 localhost\n")))
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
