package nodecheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// describe is what a person needs to know of a pod that did not do as it should.
func (n *Node) describe(ctx context.Context, last *corev1.Pod) string {
	pod := last
	if now, err := n.Client.CoreV1().Pods(last.Namespace).Get(ctx, last.Name, metav1.GetOptions{}); err == nil && now.UID == last.UID {
		pod = now
	}
	var text strings.Builder
	fmt.Fprintf(&text, "pod %s/%s: phase %s", pod.Namespace, pod.Name, pod.Status.Phase)
	if pod.Status.Reason != "" || pod.Status.Message != "" {
		fmt.Fprintf(&text, ", %s: %s", pod.Status.Reason, pod.Status.Message)
	}
	text.WriteString("\n")
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			fmt.Fprintf(&text, "  condition %s is %s: %s %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		fmt.Fprintf(&text, "  container %s: %s, restarts: %d\n", c.Name, describeState(c.State), c.RestartCount)
		if c.LastTerminationState.Terminated != nil {
			fmt.Fprintf(&text, "    before: %s\n", describeState(c.LastTerminationState))
		}
	}
	events, err := n.eventsOf(ctx, pod)
	if err != nil {
		fmt.Fprintf(&text, "  its events cannot be read: %v\n", err)
	}
	for _, event := range events {
		fmt.Fprintf(&text, "  event %s %s: %s\n", event.Type, event.Reason, event.Message)
	}
	return text.String()
}

func describeState(state corev1.ContainerState) string {
	switch {
	case state.Running != nil:
		return "running"
	case state.Terminated != nil:
		t := state.Terminated
		return strings.TrimSpace(fmt.Sprintf("terminated with %d, %s %s", t.ExitCode, t.Reason, strings.TrimSpace(t.Message)))
	case state.Waiting != nil:
		return strings.TrimSpace("waiting, " + state.Waiting.Reason + " " + state.Waiting.Message)
	}
	return "no state"
}
