package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Claims returns why a pod is rejected whose resource claims nobody serves on the
// node; nil if it has none. It must not run without the devices that it asks for.
func Claims(pod *corev1.Pod) *Rejection {
	var names []string
	for _, claim := range pod.Spec.ResourceClaims {
		names = append(names, claim.Name)
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		names = append(names, status.ResourceClaimName)
	}
	if len(names) == 0 {
		return nil
	}
	return &Rejection{reasonUnexpected, fmt.Sprintf(
		"the node's provider does not prepare resource claims (%s): run the pod on a node with a driver for them", strings.Join(names, ", "))}
}

// taken is what the pods of a node take together.
type taken struct {
	pods     int
	requests amounts
	ports    map[port]int // how many pods have it
}

// check returns why a pod may not run on a node beside others; nil if it may. Of
// several reasons it is the one that a kubelet gives.
func check(pod *corev1.Pod, wants usage, node *corev1.Node, others *taken) *Rejection {
	if os := osOf(node); os != "" {
		if label, ok := pod.Labels[corev1.LabelOSStable]; ok && label != os {
			return &Rejection{reasonOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
		}
		if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != os {
			return &Rejection{reasonOS, "Failed to admit pod as the OS field doesn't match node OS"}
		}
	}
	if rejection := checkResources(wants.requests, allocatable(node), others); rejection != nil {
		return rejection
	}
	// An expression that cannot be parsed matches nothing, as for the scheduler.
	if matches, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !matches {
		return unfit(reasonAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	for taken := range others.ports {
		if slices.ContainsFunc(wants.ports, taken.clash) {
			return unfit(reasonPorts, "node(s) didn't have free ports for the requested pod ports")
		}
	}
	if hasUntolerated(node.Spec.Taints, pod.Spec.Tolerations) {
		return unfit(reasonTaint, "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

// osOf returns the operating system of the node's pods, or nothing if it is not known.
func osOf(node *corev1.Node) string {
	if os := node.Labels[corev1.LabelOSStable]; os != "" {
		return os
	}
	return node.Status.NodeInfo.OperatingSystem
}

// allocatable returns what the node has for pods.
func allocatable(node *corev1.Node) amounts {
	if node.Status.Allocatable != nil {
		return amountsOf(node.Status.Allocatable)
	}
	return amountsOf(node.Status.Capacity)
}

func checkResources(requests []request, capacity amounts, others *taken) *Rejection {
	if limit, known := capacity[corev1.ResourcePods]; known && int64(others.pods)+1 > limit {
		return insufficient(corev1.ResourcePods, 1, int64(others.pods), limit)
	}
	for _, r := range requests {
		limit, known := capacity[r.name]
		if used := others.requests[r.name]; known && r.amount > 0 && r.amount > limit-used {
			return insufficient(r.name, r.amount, used, limit)
		}
	}
	return nil
}

// hasUntolerated reports whether the node has a taint which would have the pod
// evicted at once.
func hasUntolerated(taints []corev1.Taint, tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Logger{}, &taint, false)
		})
	})
}
