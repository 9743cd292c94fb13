package podengine

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// clusterDNSLabel selects the Service of a cluster's DNS, regardless of the
// server behind it: CoreDNS and kube-dns have the same.
var clusterDNSLabel = labels.SelectorFromSet(labels.Set{"k8s-app": "kube-dns"})

// podDNS is the pod's resolv.conf, and what there is to warn of. A kubelet warns at
// each pod that wants the cluster's DNS on a node that knows no address of it. In
// a cluster without DNS nobody could configure one, so there is no such warning.
func (e *Engine) podDNS(pod *corev1.Pod) (podspec.ResolvConf, []podspec.Warning) {
	dns, found := e.cfg.DNS.ForPod(pod)
	warnings := found[:0]
	for _, warning := range found {
		if warning.Reason != podspec.ReasonMissingClusterDNS || e.clusterHasDNS() {
			warnings = append(warnings, warning)
		}
	}
	return dns, warnings
}

func (e *Engine) clusterHasDNS() bool {
	services, err := e.cfg.Services.Services(metav1.NamespaceSystem).List(clusterDNSLabel)
	return err != nil || len(services) > 0
}
