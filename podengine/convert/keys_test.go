package convert

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Whose sandboxes and containers are is read from what is written with them, the
// rest in a kubelet's form.
func TestIdentityComesBack(t *testing.T) {
	pod := podOf(func(pod *corev1.Pod, app *corev1.Container) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		app.TerminationMessagePath, app.TerminationMessagePolicy = "/msg", corev1.TerminationMessageFallbackToLogsOnError
		app.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}
	})
	c := containerOf(t, testNode, pod, ContainerOptions{Attempt: 4})
	who := Identity{Namespace: "ns", Name: "web", UID: "u1", Container: "app", Node: "vk"}
	equal(t, "container", IdentityOf(c.Labels, c.Annotations), who)
	for key, want := range map[string]string{
		HashAnnotation:                     strconv.FormatUint(podspec.HashContainer(&pod.Spec.Containers[0]), 16),
		RestartCountAnnotation:             "4",
		TerminationMessagePathAnnotation:   "/msg",
		TerminationMessagePolicyAnnotation: "FallbackToLogsOnError",
		TerminationGracePeriodAnnotation:   "30",
		PreStopHandlerAnnotation:           `{"exec":{"command":["bye"]}}`,
	} {
		equal(t, key, c.Annotations[key], want)
	}
	box := sandboxOf(t, testNode, pod, SandboxOptions{})
	who.Container = ""
	equal(t, "sandbox", IdentityOf(box.Labels, box.Annotations), who)
}

// What others made is not ours.
func TestIdentityOfOthers(t *testing.T) {
	equal(t, "nothing", IdentityOf(nil, nil), Identity{})
	kubelets := IdentityOf(map[string]string{"io.kubernetes.pod.uid": "u2"}, nil)
	equal(t, "node of a kubelet's pod", kubelets.Node, "")
}
