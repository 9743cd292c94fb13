package main

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
)

// configMap is what some pods refer to.
const configMap = "soak"

// shapes are the kinds of pods by provider: each pod is made one of them.
var shapes = map[string]func(*corev1.Pod, *rand.Rand){
	"mock": shapeAny, "kubernetes": shapeAny, "process": shapeProcess,
}

// shapeAny gives a third of the pods variables and a volume of a ConfigMap, and a second container.
func shapeAny(pod *corev1.Pod, random *rand.Rand) {
	if random.IntN(3) > 0 {
		return
	}
	first := &pod.Spec.Containers[0]
	first.Env = []corev1.EnvVar{
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "KEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Key: "key"}}},
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}}
	first.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/soak"}}
	second := *first.DeepCopy()
	second.Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, second)
}

// shapeProcess has pods sleep, and some of them end, fail again and again, write, or be probed.
func shapeProcess(pod *corev1.Pod, random *rand.Rand) {
	shapeAny(pod, random)
	grace := int64(2)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	script := "exec sleep 100000"
	switch random.IntN(20) {
	case 0: // a job
		script, pod.Spec.RestartPolicy = "sleep 20", corev1.RestartPolicyNever
	case 1: // a crash loop
		script = "sleep 5; exit 1"
	case 2:
		script = "while :; do date; sleep 1; done"
	case 3: // one that does not end by itself
		script = "trap '' TERM; while :; do sleep 1; done"
	case 4:
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 5,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Command = []string{"/bin/sh", "-c", script}
	}
}
