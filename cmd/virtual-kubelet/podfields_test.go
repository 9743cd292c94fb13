package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// fieldsFile is where the directory of a provider has what of pods it runs, by the names of
// fieldGroups: "yes", "no", or "in part", with which pods run and lack some of it.
const fieldsFile = "testdata/fields.json"

// fieldGroups are what pods may need, with a change of a plain pod that does.
var fieldGroups = []struct {
	name string
	need func(spec *corev1.PodSpec, main *corev1.Container)
}{
	{"Always", func(s *corev1.PodSpec, _ *corev1.Container) { s.RestartPolicy = corev1.RestartPolicyAlways }},
	{"OnFailure", func(s *corev1.PodSpec, _ *corev1.Container) { s.RestartPolicy = corev1.RestartPolicyOnFailure }},
	{"Never", func(s *corev1.PodSpec, _ *corev1.Container) { s.RestartPolicy = corev1.RestartPolicyNever }},
	{"containers", func(s *corev1.PodSpec, main *corev1.Container) {
		s.Containers = append(s.Containers, corev1.Container{Name: "second", Image: main.Image, Command: main.Command})
	}},
	{"init containers", func(s *corev1.PodSpec, main *corev1.Container) {
		s.InitContainers = []corev1.Container{{Name: "first", Image: main.Image, Command: main.Command}}
	}},
	{"sidecars", func(s *corev1.PodSpec, main *corev1.Container) {
		s.InitContainers = []corev1.Container{{Name: "beside", Image: main.Image, Command: main.Command, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	}},
	{"exec probes", func(_ *corev1.PodSpec, main *corev1.Container) {
		main.LivenessProbe = probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}})
	}},
	{"HTTP probes", func(_ *corev1.PodSpec, main *corev1.Container) {
		main.ReadinessProbe = probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: corev1.URISchemeHTTP}})
	}},
	{"hooks", func(_ *corev1.PodSpec, main *corev1.Container) {
		main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	}},
	{"emptyDir", mounting(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})},
	{"files", mounting(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "files"}}})},
	{"hostPath", mounting(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}})},
	{"claims", mounting(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})},
	{"users", func(_ *corev1.PodSpec, main *corev1.Container) {
		main.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
	}},
	{"privileged", func(_ *corev1.PodSpec, main *corev1.Container) {
		main.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}},
	{"host network", func(s *corev1.PodSpec, _ *corev1.Container) { s.HostNetwork = true }},
	{"DNS", func(s *corev1.PodSpec, _ *corev1.Container) {
		s.DNSPolicy, s.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}}
	}},
}

func probe(h corev1.ProbeHandler) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: h, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
}

func mounting(source corev1.VolumeSource) func(*corev1.PodSpec, *corev1.Container) {
	return func(s *corev1.PodSpec, main *corev1.Container) {
		s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
		main.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

// mapped returns what of pods a provider runs that unsupported is of.
func mapped(unsupported func(*corev1.Pod) (missing, ignored []string)) map[string]string {
	// A policy that the provider has, since the others would be all that it refuses.
	plain := func(policy corev1.RestartPolicy) *corev1.Pod {
		pod := grouptest.NewPod("plain")
		pod.Spec.RestartPolicy = policy
		pod.Spec.Containers[0].Command = []string{"sleep", "1000"}
		return pod
	}
	policy := corev1.RestartPolicyAlways
	if missing, _ := unsupported(plain(policy)); len(missing) > 0 {
		policy = corev1.RestartPolicyNever
	}
	found := map[string]string{}
	for _, group := range fieldGroups {
		pod := plain(policy)
		group.need(&pod.Spec, &pod.Spec.Containers[0])
		switch missing, ignored := unsupported(pod); {
		case len(missing) > 0:
			found[group.name] = "no"
		case len(ignored) > 0:
			found[group.name] = "in part"
		default:
			found[group.name] = "yes"
		}
	}
	return found
}
