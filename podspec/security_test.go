package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestSecurityContext(t *testing.T) {
	pod, c := &corev1.Pod{}, &corev1.Container{}
	if sc := SecurityContext(pod, c); sc != (corev1.SecurityContext{}) {
		t.Errorf("without any it is %+v", sc)
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), RunAsNonRoot: new(true)}
	c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0)), Privileged: new(true)}
	sc := SecurityContext(pod, c)
	if *sc.RunAsUser != 0 || *sc.RunAsGroup != 2 || !*sc.RunAsNonRoot || !*sc.Privileged {
		t.Errorf("it is %+v", sc)
	}
	if c.SecurityContext.RunAsGroup != nil {
		t.Error("the container was changed")
	}
}

func TestPortNumber(t *testing.T) {
	c := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}
	for port, want := range map[intstr.IntOrString]int32{intstr.FromInt32(8080): 8080, intstr.FromString("web"): 80, intstr.FromString("admin"): 0} {
		if got := PortNumber(c, port); got != want {
			t.Errorf("port %s is %d", port.String(), got)
		}
	}
}
