package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// shapes are the kinds of pods.
var shapes = map[string]func(*corev1.Pod){
	"plain": nil,
	"rich":  rich,
}

// rich gives a pod three containers, each with twenty variables and a probe.
func rich(pod *corev1.Pod) {
	first := pod.Spec.Containers[0]
	pod.Spec.Containers = nil
	for i := range 3 {
		c := *first.DeepCopy()
		c.Name = fmt.Sprintf("c%d", i)
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		for v := range 20 {
			c.Env = append(c.Env, variable(v))
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
}

// variable refers to other variables, to the pod or to a ConfigMap, in turns.
func variable(i int) corev1.EnvVar {
	env := corev1.EnvVar{Name: fmt.Sprintf("VAR_%d", i)}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	switch i % 4 {
	case 0:
		env.Value = "$(VAR_1)-$(VAR_2)"
	case 1:
		env.ValueFrom = field("metadata.name")
	case 2:
		env.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Key: "key"}}
	case 3:
		env.ValueFrom = field("spec.nodeName")
	}
	return env
}

// configMap is what rich pods refer to.
const configMap = "bench"
