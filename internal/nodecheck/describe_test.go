package nodecheck

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What was seen of a pod has what its containers were to do, and what they have printed.
func TestDescriptionHasCommandAndLog(t *testing.T) {
	s, pod := onFake(t, Options{Shell: DefaultShell()})
	pod.Spec.Containers[0].Args = []string{"one", "two words"}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}}}
	s.seen(pod)
	if err := s.Client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	text := s.Describe(t.Context())
	for _, part := range []string{`command: ["sh" "-c" "trap `, `arguments: ["one" "two words"]`, "    log: fake logs\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	if text := s.Describe(t.Context()); strings.Contains(text, "log") {
		t.Errorf("a container that has not run has a log:\n%s", text)
	}
}
