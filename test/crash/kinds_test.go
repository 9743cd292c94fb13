//go:build integration || containers

package crash

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// kind is a pod that one might have, and what must become of it.
type kind struct {
	name string
	make func() corev1.PodSpec
	ends corev1.PodPhase  // Running for those that do not end by themselves
	exit map[string]int32 // of containers that do not end with 0
	// starts are how often containers are started that do not run just once.
	starts map[string]int
}

const (
	// forever runs until it is asked to end, and then does.
	forever = `trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done`
	// stubborn has to be killed.
	stubborn = `trap '' TERM; while :; do sleep 1; done`
)

var kinds = []kind{
	{name: "service", ends: corev1.PodRunning, make: func() corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{shell("main", forever)}}
	}},
	{name: "job", ends: corev1.PodSucceeded, make: func() corev1.PodSpec {
		return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{shell("main", `sleep 0.5`)}}
	}},
	{name: "instant", ends: corev1.PodSucceeded, make: func() corev1.PodSpec {
		return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{shell("main", `exit 0`)}}
	}},
	{name: "failing", ends: corev1.PodFailed, exit: map[string]int32{"main": 3}, make: func() corev1.PodSpec {
		return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{shell("main", `sleep 0.2; exit 3`)}}
	}},
	{name: "retried", ends: corev1.PodSucceeded, starts: map[string]int{"main": 2}, make: func() corev1.PodSpec {
		return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{
			shell("main", `[ -e /shared/tried ] && exit 0; : >/shared/tried; exit 1`),
		}}
	}},
	{name: "prepared", ends: corev1.PodSucceeded, make: func() corev1.PodSpec {
		return corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyNever,
			InitContainers: []corev1.Container{shell("first", `sleep 0.3; echo 1 >>/shared/file`), shell("second", `echo 2 >>/shared/file`)},
			Containers:     []corev1.Container{shell("main", `set -- $(cat /shared/file); [ "$*" = "1 2" ]`)},
		}
	}},
	{name: "accompanied", ends: corev1.PodRunning, make: func() corev1.PodSpec {
		return corev1.PodSpec{InitContainers: []corev1.Container{sidecar("beside")}, Containers: []corev1.Container{shell("main", forever)}}
	}},
	{name: "accompanied-job", ends: corev1.PodSucceeded, make: func() corev1.PodSpec {
		return corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyNever,
			InitContainers: []corev1.Container{sidecar("beside"), shell("first", `sleep 0.2`)},
			Containers:     []corev1.Container{shell("main", `sleep 0.5`)},
		}
	}},
	{name: "hooked", ends: corev1.PodRunning, make: func() corev1.PodSpec {
		c := shell("main", forever)
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "0.5"}}}}
		return corev1.PodSpec{Containers: []corev1.Container{c}}
	}},
	{name: "stubborn", ends: corev1.PodRunning, make: func() corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{shell("main", stubborn)}}
	}},
	{name: "pair", ends: corev1.PodSucceeded, make: func() corev1.PodSpec {
		return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
			shell("reader", `until [ -e /shared/file ]; do sleep 0.1; done`),
			shell("writer", `sleep 0.2; : >/shared/file`),
		}}
	}},
}

// shell is a container that runs a script, and writes down that it does.
func shell(name, script string) corev1.Container {
	return corev1.Container{
		Name:    name,
		Command: []string{"sh", "-c", `echo "$POD_UID $CONTAINER" >>"$STARTS/file"; ` + script},
		Env: []corev1.EnvVar{
			{Name: "CONTAINER", Value: name},
			{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}},
	}
}

func sidecar(name string) corev1.Container {
	c, always := shell(name, forever), corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// podSpec is a pod of this kind for the node.
func (k *kind) podSpec(p *population) corev1.PodSpec {
	spec := k.make()
	grace := int64(2)
	limit := resource.MustParse("10Mi")
	spec.TerminationGracePeriodSeconds = &grace
	spec.NodeSelector = map[string]string{corev1.LabelHostname: p.node}
	spec.Tolerations = []corev1.Toleration{{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists}}
	spec.Volumes = []corev1.Volume{
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}}},
	}
	starts := p.dir
	var mounts []corev1.VolumeMount
	if !p.noHostPath {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "starts", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: p.dir}}})
		starts, mounts = "/starts", []corev1.VolumeMount{{Name: "starts", MountPath: "/starts"}}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			c.Image, c.Env, c.VolumeMounts = p.image, append(c.Env, corev1.EnvVar{Name: "STARTS", Value: starts}), append(c.VolumeMounts, mounts...)
		}
	}
	return spec
}

// timesStarted is how often a container is started.
func (k *kind) timesStarted(container string) int {
	if n, ok := k.starts[container]; ok {
		return n
	}
	return 1
}

// mostStarts is how often a container may be started.
func (m *member) mostStarts(container string) int {
	n := m.timesStarted(container)
	if m.lost && m.make().RestartPolicy != corev1.RestartPolicyNever {
		n *= 2
	}
	return n + m.brokenOff[container]
}

// mayFail reports whether the pod may end as Failed since the runtime broke a start off, or its
// machine was killed.
func (m *member) mayFail() bool {
	return (len(m.brokenOff) > 0 || m.lost) && m.make().RestartPolicy == corev1.RestartPolicyNever
}

// mayBe reports whether a pod that nobody ends may be in a phase.
func (m *member) mayBe(phase corev1.PodPhase) bool {
	switch phase {
	case "", corev1.PodPending, corev1.PodRunning, m.ends:
		return true
	}
	return phase == corev1.PodFailed && m.mayFail()
}
