package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMessagesShareTheirRoom(t *testing.T) {
	terminated := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}},
		Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
	}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	long, umlauts := strings.Repeat("x", 4<<10), "x"+strings.Repeat("ü", 2<<10)
	known := map[string]corev1.ContainerStatus{
		"i": {Name: "i", State: terminated("short")},
		"a": {Name: "a", State: terminated(long), LastTerminationState: terminated(long)},
		"b": {Name: "b", State: terminated(umlauts)},
		"e": {Name: "e", State: terminated("no\xfftext")},
	}
	s := Status(pod, Observation{Statuses: known}, nil, metav1.Now())
	const share = 3 << 10 // of four
	for where, c := range map[string]struct{ got, want string }{
		"init container": {s.InitContainerStatuses[0].State.Terminated.Message, "short"},
		"state":          {s.ContainerStatuses[0].State.Terminated.Message, long[:share]},
		"last state":     {s.ContainerStatuses[0].LastTerminationState.Terminated.Message, long[:share]},
		"a character":    {s.ContainerStatuses[1].State.Terminated.Message, umlauts[:share-1]},
		"no text":        {s.EphemeralContainerStatuses[0].State.Terminated.Message, "no\uFFFDtext"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d: %.20q", where, len(c.got), len(c.want), c.got)
		}
	}
	if len(known["a"].State.Terminated.Message) != len(long) {
		t.Error("what was observed was changed")
	}
}
