package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// checkPods looks for pods that ask for this node, by a selector or an affinity, and do
// not tolerate its taints. Pods that ask for no node in particular are not counted, and
// whether the node has room is left to the scheduler's own events.
func checkPods(ctx context.Context, e *examination) Finding {
	list, err := e.client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,status.phase=Pending"})
	if err != nil {
		return e.unread("the pods that are pending", err)
	}
	var names []string
	var first *corev1.Pod
	var obstacle corev1.Taint
	for i := range list.Items {
		pod := &list.Items[i]
		taint, kept := e.keepsOut(pod)
		if !kept {
			continue
		}
		if names = append(names, pod.Namespace+"/"+pod.Name); first == nil {
			first, obstacle = pod, taint
		}
	}
	if first == nil {
		return ok("none that asks for this node waits because of its taints")
	}
	fix := fmt.Sprintf(`a toleration in the pod's template; for this pod: kubectl -n %s patch pod %s --type json -p '[{"op": "add", "path": "/spec/tolerations/-", "value": {"key": %q, "operator": "Exists"}}]'`,
		first.Namespace, first.Name, obstacle.Key)
	if obstacle.Key == corev1.TaintNodeUnschedulable {
		fix = "kubectl uncordon " + e.node.Name
	}
	return warning(fix, "the taint %s keeps out pods that ask for this node: %s", obstacle.ToString(), named(names))
}

// keepsOut returns the taint of the node that keeps out a pod which asks for it.
func (e *examination) keepsOut(pod *corev1.Pod) (corev1.Taint, bool) {
	affinity := pod.Spec.Affinity
	asks := len(pod.Spec.NodeSelector) > 0 ||
		affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
	if !asks {
		return corev1.Taint{}, false
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(e.object); err != nil || !matches {
		return corev1.Taint{}, false
	}
	repels := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	return schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), e.object.Spec.Taints, pod.Spec.Tolerations, repels, false)
}
