package machine

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// declaredFeatures are features of the pod engine that the scheduler looks for in a
// node's status before it binds a pod that needs one (KEP-5328), in their order.
var declaredFeatures = []string{"RestartAllContainersOnContainerExits"}

// describeRuntime says in the node's status what its runtime can do, as far as
// the runtime says so.
func describeRuntime(n *corev1.Node, runtime *runtimeapi.StatusResponse) {
	n.Status.RuntimeHandlers = nil
	for _, h := range runtime.GetRuntimeHandlers() {
		handler := corev1.NodeRuntimeHandler{Name: h.Name}
		if f := h.Features; f != nil {
			handler.Features = &corev1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: ptr.To(f.RecursiveReadOnlyMounts),
				UserNamespaces:          ptr.To(f.UserNamespaces),
			}
		}
		n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, handler)
	}
	if f := runtime.GetFeatures(); f != nil {
		n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(f.SupplementalGroupsPolicy)}
	}
}
