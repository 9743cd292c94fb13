package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDescribeRuntime(t *testing.T) {
	var n corev1.Node
	describeRuntime(&n, &runtimeapi.StatusResponse{
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "fast", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	})
	h := n.Status.RuntimeHandlers
	if len(h) != 2 || h[0].Features != nil || h[1].Name != "fast" || !*h[1].Features.RecursiveReadOnlyMounts || *h[1].Features.UserNamespaces ||
		!*n.Status.Features.SupplementalGroupsPolicy {
		t.Errorf("the node is %+v", n.Status)
	}
	var old corev1.Node
	describeRuntime(&old, &runtimeapi.StatusResponse{})
	if old.Status.RuntimeHandlers != nil || old.Status.Features != nil {
		t.Errorf("of a runtime that does not say, the node says %+v", old.Status)
	}
}
