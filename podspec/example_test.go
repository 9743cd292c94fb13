package podspec_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The resolv.conf of a pod, on a node with a cluster's DNS service.
func ExampleDNS_ForPod() {
	dns := podspec.DNS{
		ClusterServers: []string{"10.96.0.10"},
		ClusterDomain:  "cluster.local",
		Host:           podspec.ParseResolvConf("nameserver 192.0.2.1\nsearch example.com\n"),
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	conf, warnings := dns.ForPod(pod)
	fmt.Print(conf)
	fmt.Println(len(warnings), "warnings")
	// Output:
	// search shop.svc.cluster.local svc.cluster.local cluster.local example.com
	// nameserver 10.96.0.10
	// options ndots:5
	// 0 warnings
}
