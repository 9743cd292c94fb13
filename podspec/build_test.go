package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities makes a list from names and values in turn.
func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func requests(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: quantities(pairs...)}
}

func limits(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: quantities(pairs...)}
}

func both(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: quantities(pairs...), Limits: quantities(pairs...)}
}

// container has resources and a name.
func container(name string, r corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{Name: name, Resources: r}
}

func sidecar(name string, r corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{Name: name, Resources: r, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
}
