package nodeutil

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Pods have one address of each family of their node's, as the API has it in status.hostIPs.
func TestHostIPsAreOneOfEachFamily(t *testing.T) {
	n := &corev1.Node{}
	for _, address := range []string{"10.0.0.1", "10.1.0.1", "fd00::1"} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	if got := hostIPs(n); !slices.Equal(got, []string{"10.0.0.1", "fd00::1"}) {
		t.Errorf("got %q", got)
	}
}
