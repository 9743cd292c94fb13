package faults

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// unrest says what is not as it must be once nothing has gone wrong for a while.
func (w *world) unrest() (left []string) {
	say := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	list, err := w.admin.CoreV1().Pods(w.ns).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	wanted := map[types.UID]bool{}
	confused := 0 // pods that may be tried for ever: another one is taken for them
	for i := range list.Items {
		pod := &list.Items[i]
		wanted[pod.UID] = true
		if w.excused(pod) {
			confused++
		}
		if problem := w.unrestOf(pod); problem != "" {
			say("pod %s (%s): %s", pod.Name, pod.UID, problem)
		}
	}
	for _, pod := range w.model.all() {
		if pod.Spec.NodeName == w.node && !wanted[pod.UID] && !w.excusedLeak(pod, list.Items) {
			say("invariant 3: pod %s (%s) is held, which the API has not", pod.Name, pod.UID)
		}
	}
	if w.model.holds(foreign) == nil && !w.prov.Lied("default", "elsewhere") {
		say("invariant 3: the pod of another node is gone")
	}
	if w.agent != nil {
		pods := w.agent.node.PodController()
		for name, length := range map[string]int{
			"sync":    max(0, pods.SyncPodsFromKubernetesQueueLen()-confused),
			"status":  pods.SyncPodStatusFromProviderQueueLen(),
			"removal": pods.DeletePodsFromKubernetesQueueLen(),
		} {
			if length != 0 {
				say("the %s queue has %d keys", name, length)
			}
		}
		if problem := w.unrestOfNode(); problem != "" {
			say("%s", problem)
		}
	}
	return left
}

// excusedLeak reports whether a pod that is held may be taken for one of the API's.
func (w *world) excusedLeak(held *corev1.Pod, pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == held.Name && w.excused(&pod) })
}

// unrestOf says what is wrong with a pod that the API has.
func (w *world) unrestOf(pod *corev1.Pod) string {
	held := w.model.holds(pod.UID)
	excused := w.excused(pod)
	w.mu.Lock()
	fate := *w.pods[pod.UID]
	w.mu.Unlock()
	foreign := func(c corev1.PodCondition) bool { return c.Type == "example.com/foreign" }
	switch {
	case fate.condition && !slices.ContainsFunc(pod.Status.Conditions, foreign):
		return "invariant 7: somebody else's condition is gone"
	case pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0:
		return "invariant 4: it was deleted, and is there"
	case pod.DeletionTimestamp != nil && held != nil && !excused:
		return fmt.Sprintf("invariant 4: it was deleted, and is %s in the provider", held.Status.Phase)
	case pod.DeletionTimestamp != nil && !isTerminal(pod.Status.Phase):
		return "invariant 4: it was deleted, and those who hold it do not learn how it ended: " + string(pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return ""
	case isTerminal(pod.Status.Phase):
		if excused {
			return ""
		}
		return w.unrestOfEnded(pod, held)
	case excused && held == nil && (pod.Status.Phase != corev1.PodRunning || w.model.hasNamed(pod.Namespace, pod.Name)):
		return ""
	case held == nil:
		return "invariant 5: it is " + string(pod.Status.Phase) + ", and the provider does not hold it"
	}
	return unlike(pod, held, excused)
}

// unrestOfEnded says what is wrong with a pod that has ended and stays.
func (w *world) unrestOfEnded(pod, held *corev1.Pod) string {
	switch pod.Status.Reason {
	case node.StatusReasonNotFound:
		w.mu.Lock()
		maybe := w.mayLose(pod.CreationTimestamp.Time)
		w.mu.Unlock()
		if !w.excused(pod) && !maybe {
			return "it counts as lost, and the provider has never lost it"
		}
	case node.StatusReasonProviderFailed:
		if !w.prov.Refused(pod.Namespace, pod.Name) {
			return "invariant 5: it was given up"
		}
	default:
		if held != nil && held.Status.Phase != pod.Status.Phase {
			return fmt.Sprintf("it is %s, and %s in the provider", pod.Status.Phase, held.Status.Phase)
		}
	}
	if held != nil && !isTerminal(held.Status.Phase) {
		return fmt.Sprintf("it is %s, and %s in the provider", pod.Status.Phase, held.Status.Phase)
	}
	return ""
}

// unlike says how a pod differs between API and provider. One that was shown as
// another after a restart is not seen to have changed before that.
func unlike(pod, held *corev1.Pod, excused bool) string {
	is, observed := &pod.Status, &held.Status
	switch {
	case is.Phase != observed.Phase:
		return fmt.Sprintf("it is %s, and %s in the provider", is.Phase, observed.Phase)
	case !equality.Semantic.DeepEqual(is.ContainerStatuses, observed.ContainerStatuses):
		return fmt.Sprintf("its containers are %v, and %v in the provider", is.ContainerStatuses, observed.ContainerStatuses)
	case is.PodIP != observed.PodIP:
		return fmt.Sprintf("its IP is %q, and %q in the provider", is.PodIP, observed.PodIP)
	case ready(is) != ready(observed):
		return fmt.Sprintf("ready is %s, and %s in the provider", ready(is), ready(observed))
	case excused:
		return ""
	case !equality.Semantic.DeepEqual(pod.Labels, held.Labels):
		return fmt.Sprintf("its labels are %v, and %v in the provider", pod.Labels, held.Labels)
	case pod.Spec.Containers[0].Image != held.Spec.Containers[0].Image:
		return fmt.Sprintf("its image is %s, and %s in the provider", pod.Spec.Containers[0].Image, held.Spec.Containers[0].Image)
	case is.ObservedGeneration != pod.Generation:
		return fmt.Sprintf("its generation is %d, and observed is %d", pod.Generation, is.ObservedGeneration)
	}
	return ""
}

func ready(status *corev1.PodStatus) corev1.ConditionStatus {
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// unrestOfNode says what is wrong with the node.
func (w *world) unrestOfNode() string {
	object, err := w.admin.CoreV1().Nodes().Get(w.ctx, w.node, metav1.GetOptions{})
	if err != nil {
		return "the node: " + err.Error()
	}
	if !isReady(object) {
		return "the node is not ready"
	}
	for _, c := range object.Status.Conditions {
		if c.Type == node.ConditionPodsMissing && c.Status == corev1.ConditionTrue {
			return "its pods count as missing: " + c.Message
		}
	}
	return ""
}
