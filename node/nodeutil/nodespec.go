package nodeutil

import (
	"net"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

// What a kubelet has to say of a node that is Ready.
const (
	readyReason  = "KubeletReady"
	readyMessage = "kubelet is posting ready status"
)

// HealthyConditions are the conditions of a node that can take pods, with the
// kubelet's reasons.
func HealthyConditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: readyReason, Message: readyMessage},
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

// setReady makes a node Ready that says that it is not, and has no NodeProvider that would ever say otherwise: providers
// that were written for the original library are made ready by it once their pods are watched, which comes before the
// registration here.
func setReady(n *corev1.Node) {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionTrue, readyReason, readyMessage, metav1.Time{}
		}
	}
}

// hostIPs are the node's internal addresses, as pods have them in status.hostIPs: the first of each family.
func hostIPs(n *corev1.Node) []string {
	var ips []string
	for _, address := range n.Status.Addresses {
		if address.Type == corev1.NodeInternalIP && net.ParseIP(address.Address) != nil && !slices.Contains(ips, address.Address) {
			ips = append(ips, address.Address)
		}
	}
	return podstatus.SortAddresses(ips, nil)
}
