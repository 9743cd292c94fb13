package nodeutil

import (
	"net"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
)

// HealthyConditions are the conditions of a node that can take pods, with the
// kubelet's reasons.
func HealthyConditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
}

// commonLabels are those that every kubelet gives its node: pods select by them.
var commonLabels = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable}

// completeNode fills in what neither the caller nor the provider has set.
func completeNode(n *corev1.Node) {
	if len(n.Status.Conditions) == 0 {
		n.Status.Conditions = HealthyConditions()
	}
	info := &n.Status.NodeInfo
	if info.KubeletVersion == "" {
		info.KubeletVersion = buildinfo.KubeletVersion()
	}
	if info.Architecture == "" {
		info.Architecture = runtime.GOARCH
	}
	if info.OperatingSystem == "" {
		info.OperatingSystem = "linux"
	}
	for label, value := range map[string]string{
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   info.OperatingSystem,
		corev1.LabelArchStable: info.Architecture,
	} {
		if n.Labels[label] == "" {
			n.Labels[label] = value
		}
	}
}

// hostIPs are the node's internal addresses.
func hostIPs(n *corev1.Node) []string {
	var ips []string
	for _, address := range n.Status.Addresses {
		if address.Type == corev1.NodeInternalIP && net.ParseIP(address.Address) != nil && !slices.Contains(ips, address.Address) {
			ips = append(ips, address.Address)
		}
	}
	return ips
}
