package nodecheck

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// describedLogTimeout is how long the end of a log may take to be read.
const describedLogTimeout = 5 * time.Second

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
		n.describeContainer(ctx, &text, pod, &c)
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

// describeContainer writes the command of a container and the end of its log.
func (n *Node) describeContainer(ctx context.Context, text *strings.Builder, pod *corev1.Pod, status *corev1.ContainerStatus) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != status.Name {
			continue
		}
		if len(c.Command) > 0 {
			fmt.Fprintf(text, "    command: %q\n", c.Command)
		}
		if len(c.Args) > 0 {
			fmt.Fprintf(text, "    arguments: %q\n", c.Args)
		}
	}
	if status.State.Waiting != nil && status.LastTerminationState.Terminated == nil {
		return // it has no log
	}
	ctx, cancel := within(ctx, describedLogTimeout)
	defer cancel()
	log, err := n.logs(ctx, pod, corev1.PodLogOptions{Container: status.Name, TailLines: ptr.To[int64](20), LimitBytes: ptr.To[int64](4 << 10)})
	if statusCode(err) == http.StatusNotImplemented {
		return // the provider has none
	}
	if err != nil {
		fmt.Fprintf(text, "    its log cannot be read: %v\n", err)
	}
	for line := range strings.Lines(log) {
		fmt.Fprintf(text, "    log: %s\n", strings.TrimSuffix(line, "\n"))
	}
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
