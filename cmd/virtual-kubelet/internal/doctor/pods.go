package doctor

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// checkPods looks for pods that ask for this node, by a selector or an affinity, and do
// not tolerate its taints. Pods that ask for no node in particular are not counted, and
// whether the node has room is left to the scheduler's own events.
func checkPods(ctx context.Context, e *examination) Finding {
	var names []string
	var first *corev1.Pod
	var obstacle corev1.Taint
	_, complete, err := e.eachPod(ctx, "spec.nodeName=,status.phase=Pending", func(pod *corev1.Pod) {
		taint, kept := e.keepsOut(pod)
		if !kept {
			return
		}
		if names = append(names, pod.Namespace+"/"+pod.Name); first == nil {
			first, obstacle = pod.DeepCopy(), taint
		}
	})
	if err != nil {
		return e.unread("the pods that are pending", err)
	}
	seen := "that asks for this node"
	if !complete {
		seen = fmt.Sprintf("of the first %d that are pending and ask for this node", podsPage*maxPages)
	}
	if first == nil {
		return ok("none %s waits because of its taints", seen)
	}
	return warning(e.admit(first, obstacle), "the taint %s keeps out pods that ask for this node: %s", obstacle.ToString(), named(names))
}

// admit returns what lets a pod come that a taint keeps out.
func (e *examination) admit(pod *corev1.Pod, obstacle corev1.Taint) string {
	switch {
	case obstacle.Key == corev1.TaintNodeUnschedulable:
		return "kubectl uncordon " + e.node.Name
	case strings.HasPrefix(obstacle.Key, controlPlaneTaints):
		return "none for the pod: the control plane takes this taint away once the node is well (see the checks above)"
	}
	path, value := "/spec/tolerations/-", fmt.Sprintf(`{"key": %q, "operator": "Exists"}`, obstacle.Key)
	if len(pod.Spec.Tolerations) == 0 { // then there is no list to add to
		path, value = "/spec/tolerations", "["+value+"]"
	}
	patch := fmt.Sprintf(`[{"op": "add", "path": %q, "value": %s}]`, path, value)
	return fmt.Sprintf("a toleration in the pod's template; for this pod: kubectl -n %s patch pod %s --type json -p %s", Word(pod.Namespace), Word(pod.Name), Word(patch))
}

// controlPlaneTaints begins the keys of taints that tell a node's state.
const controlPlaneTaints = "node.kubernetes.io/"

// askedBy reports whether a pod asks for the node, by a selector or an affinity.
func (e *examination) askedBy(pod *corev1.Pod) bool {
	affinity := pod.Spec.Affinity
	asks := len(pod.Spec.NodeSelector) > 0 ||
		affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
	if !asks {
		return false
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(e.object)
	return err == nil && matches
}

// keepsOut returns the taint of the node that keeps out a pod which asks for it.
func (e *examination) keepsOut(pod *corev1.Pod) (corev1.Taint, bool) {
	if !e.askedBy(pod) {
		return corev1.Taint{}, false
	}
	// Those that somebody can do something about come first.
	for _, controlPlanes := range []bool{false, true} {
		repels := func(taint *corev1.Taint) bool {
			lasts := !strings.HasPrefix(taint.Key, controlPlaneTaints) || taint.Key == corev1.TaintNodeUnschedulable
			return taint.Effect != corev1.TaintEffectPreferNoSchedule && lasts != controlPlanes
		}
		if taint, kept := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), e.object.Spec.Taints, pod.Spec.Tolerations, repels, false); kept {
			return taint, true
		}
	}
	return corev1.Taint{}, false
}
