package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Rejection is why a pod may not run on a node, in the kubelet's words.
type Rejection struct {
	// Reason is the status.reason of the pod, and that of the event.
	Reason string
	// Message is that of the event; the status says before it that the pod was
	// rejected.
	Message string
}

// The kubelet's reasons, but for those of resources, which are reasonOutOf and the
// name of the resource.
const (
	reasonOSLabel    = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonOS         = "PodOSNotSupported"
	reasonUnexpected = "UnexpectedAdmissionError"
	reasonAffinity   = "NodeAffinity"
	reasonPorts      = "NodePorts"
	reasonTaint      = "TaintToleration"
	reasonOutOf      = "OutOf"
)

func unfit(predicate, why string) *Rejection {
	return &Rejection{predicate, fmt.Sprintf("Predicate %s failed: %s", predicate, why)}
}

func insufficient(resource corev1.ResourceName, requested, used, capacity int64) *Rejection {
	return &Rejection{
		Reason: reasonOutOf + string(resource),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			resource, requested, used, capacity),
	}
}
