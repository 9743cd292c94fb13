package podenv_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

func ExampleResolve() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c",
		Env: []corev1.EnvVar{
			{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
			{Name: "GREETING", Value: "hello from $(NODE)"},
		},
		Args: []string{"$(GREETING)"},
	}}, NodeName: "vk-1"}}

	problems, err := podenv.Resolve(pod, &fake{}, podenv.Options{})
	fmt.Println(problems, err, pod.Spec.Containers[0].Args)
	// Output: [] <nil> [hello from vk-1]
}
