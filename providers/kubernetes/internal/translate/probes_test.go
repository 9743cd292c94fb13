package translate

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// The command of a probe has the plain values of its container, which the remote pod has in
// a Secret, where the kubelet does not look for them. That of a hook is not expanded.
func TestCommandsOfProbes(t *testing.T) {
	command := []string{"check", "$(USER)", "$(PASSWORD)", "$(NOBODY)", "$$(USER)", "$(RAW)", "a$$$$b"}
	want := []string{"check", "alice", "", "$(NOBODY)", "$(USER)", "$(USER)$$", "a$$b"}
	handler := func() *corev1.ExecAction { return &corev1.ExecAction{Command: slices.Clone(command)} }
	probe := func() *corev1.Probe { return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: handler()}} }
	pod := localPod(func(pod *corev1.Pod) {
		c := corev1.Container{Name: "side", LivenessProbe: probe(), ReadinessProbe: probe(), StartupProbe: probe()}
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: handler()}}
		c.Env = []corev1.EnvVar{{Name: "USER", Value: "alice"}, {Name: "PASSWORD", Value: "hunter2"}, {Name: "RAW", Value: "alice$"}}
		pod.Spec.InitContainers = []corev1.Container{c}
	})
	original := pod.DeepCopy()
	original.Spec.InitContainers[0].Env = []corev1.EnvVar{
		{Name: "USER", Value: "alice"}, {Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}, {Name: "RAW", Value: "$(USER)$$"},
	}
	o := options()
	o.Expand, o.Unresolved = podenv.Expand, func(*corev1.Pod) *corev1.Pod { return original }
	c := translated(t, o, pod).Spec.InitContainers[0]
	for what, is := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe} {
		var got []string
		for _, text := range is.Exec.Command {
			got = append(got, podenv.Expand(text, plainValues(c.Env))) // by the remote kubelet
		}
		if !slices.Equal(got, want) {
			t.Errorf("the %s probe is %q, want %q", what, got, want)
		}
	}
	if got := c.Lifecycle.PreStop.Exec.Command; !slices.Equal(got, command) {
		t.Errorf("the hook is %q, want %q", got, command)
	}
	o.Unresolved = nil
	if got := translated(t, o, pod).Spec.InitContainers[0].LivenessProbe.Exec.Command; !slices.Equal(got, command) {
		t.Errorf("a probe of a pod of which no more is known is %q, want %q", got, command)
	}
	if !slices.Equal(pod.Spec.InitContainers[0].LivenessProbe.Exec.Command, command) {
		t.Error("the pod at home was changed")
	}
}
