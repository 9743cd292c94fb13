package convert

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// What is written with sandboxes and containers is what is read from them.
func TestIdentityAndRecordComeBack(t *testing.T) {
	pod := podOf(func(pod *corev1.Pod, app *corev1.Container) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		app.TerminationMessagePath, app.TerminationMessagePolicy = "/msg", corev1.TerminationMessageFallbackToLogsOnError
		app.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}
	})
	c := containerOf(t, testNode, pod, ContainerOptions{Attempt: 4})
	who := Identity{Namespace: "ns", Name: "web", UID: "u1", Container: "app", Node: "vk"}
	equal(t, "container", IdentityOf(c.Labels, c.Annotations), who)
	want := Record{
		Hash: podspec.HashContainer(&pod.Spec.Containers[0]), RestartCount: 4,
		TerminationMessagePath: "/msg", TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		TerminationGracePeriodSeconds: new(int64(30)), PreStop: pod.Spec.Containers[0].Lifecycle.PreStop,
	}
	if got := RecordOf(c.Annotations); !reflect.DeepEqual(got, want) {
		t.Errorf("record %+v, want %+v", got, want)
	}
	box := sandboxOf(t, testNode, pod, SandboxOptions{})
	who.Container = ""
	equal(t, "sandbox", IdentityOf(box.Labels, box.Annotations), who)
}

// What others made, or has been damaged, is not ours, and no reason to fail.
func TestIdentityAndRecordOfOthers(t *testing.T) {
	equal(t, "nothing", IdentityOf(nil, nil), Identity{})
	kubelets := IdentityOf(map[string]string{"io.kubernetes.pod.uid": "u2"}, nil)
	equal(t, "node of a kubelet's pod", kubelets.Node, "")
	damaged := map[string]string{
		HashAnnotation: "x", RestartCountAnnotation: "-", TerminationGracePeriodAnnotation: "soon", PreStopHandlerAnnotation: "{",
	}
	for _, annotations := range []map[string]string{nil, damaged} {
		if got := RecordOf(annotations); !reflect.DeepEqual(got, Record{}) {
			t.Errorf("%v: %+v", annotations, got)
		}
	}
}
