package huaweicci

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func resources(pairs ...string) (list corev1.ResourceList) {
	list = corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func container(name string, limits, requests corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: limits, Requests: requests}}
}

func TestSizeOfCCI2(t *testing.T) {
	cfg := Config{API: APIv2, InstanceType: "general-computing", Size: "0.50_1.0"}
	for what, c := range map[string]struct {
		annotation  string
		containers  []corev1.Container
		init        []corev1.Container
		want, error string
	}{
		"nothing":                 {containers: []corev1.Container{{}}, want: "0.50_1.0"},
		"rounded up":              {containers: []corev1.Container{container("a", resources("cpu", "300m", "memory", "600Mi"), nil)}, want: "0.50_1.0"},
		"memory alone":            {containers: []corev1.Container{container("a", resources("memory", "7Gi"), nil)}, want: "1.00_7.0"},
		"requests where no limit": {containers: []corev1.Container{container("a", resources("cpu", "2"), resources("cpu", "1", "memory", "100M"))}, want: "2.00_2.0"},
		"a sum":                   {containers: []corev1.Container{container("a", resources("cpu", "2", "memory", "4Gi"), nil), container("b", resources("cpu", "2", "memory", "5Gi"), nil)}, want: "4.00_9.0"},
		"init": {
			containers: []corev1.Container{container("a", resources("cpu", "500m", "memory", "1Gi"), nil)},
			init:       []corev1.Container{container("first", resources("memory", "3Gi"), nil), container("second", resources("cpu", "1"), nil)}, want: "1.00_3.0",
		},
		"many CPUs":        {containers: []corev1.Container{container("a", resources("cpu", "33"), nil)}, want: "48.00_96.0"},
		"too large":        {containers: []corev1.Container{container("a", resources("memory", "513Gi"), nil)}, error: "CCI has no pod"},
		"annotation":       {annotation: "2.00_4.0", containers: []corev1.Container{container("a", resources("cpu", "2"), nil)}, want: "2.00_4.0"},
		"another format":   {annotation: "2_4", containers: []corev1.Container{{}}, error: "no size of CCI 2.0"},
		"hostile":          {annotation: strings.Repeat("9", 1000), containers: []corev1.Container{{}}, error: "\"" + strings.Repeat("9", 20) + "\" is no size of CCI 2.0"},
		"no such size":     {annotation: "2.00_40.0", containers: []corev1.Container{{}}, error: "no size of CCI 2.0"},
		"annotation small": {annotation: "0.25_0.5", containers: []corev1.Container{container("a", resources("cpu", "2"), nil)}, error: "is less than the 2.00_0.0"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: corev1.PodSpec{Containers: c.containers, InitContainers: c.init}}
		if c.annotation != "" {
			pod.Annotations[AnnotationSize] = c.annotation
		}
		switch err := cfg.completePod(pod); {
		case c.error != "":
			if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), c.error) {
				t.Errorf("%s: %v, want %s", what, err, c.error)
			}
		case err != nil || pod.Annotations[AnnotationSize] != c.want || pod.Annotations[AnnotationInstanceType] != "general-computing":
			t.Errorf("%s: %v, %v, want %s", what, pod.Annotations, err, c.want)
		}
	}
	for what, c := range map[string]corev1.Container{
		"privileged containers": {SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}},
		"restart policies":      {RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		"probes by gRPC":        {LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}}},
		"hooks but exec":        {Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}},
		"volumeDevices":         {VolumeDevices: []corev1.VolumeDevice{{}}},
		"stop signals":          {Lifecycle: &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGUSR1)}},
	} {
		for _, spec := range []corev1.PodSpec{{Containers: []corev1.Container{{}, c}}, {InitContainers: []corev1.Container{c}, Containers: []corev1.Container{{}}}} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: spec}
			if err := cfg.completePod(pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "ProviderNotSupported") || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	images := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}}}}}
	images.Annotations = map[string]string{}
	if err := cfg.completePod(images); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "ProviderNotSupported: volume v") {
		t.Errorf("a volume of an image: %v", err)
	}
	if len(sizes()) != 3+5+8+15+29+15+15+4+3+3 {
		t.Errorf("there are %d sizes", len(sizes()))
	}
}

func TestContainersOfCCI1(t *testing.T) {
	cfg := Config{API: APIv1, InstanceType: "general-computing"}
	for what, c := range map[string]struct {
		containers, init []corev1.Container
		want             string // of the first container
	}{
		"nothing":     {containers: []corev1.Container{{}}, want: "0.25_1.0"},
		"rounded up":  {containers: []corev1.Container{container("a", resources("cpu", "1100m", "memory", "1Gi"), nil)}, want: "1.25_3.0"},
		"much memory": {containers: []corev1.Container{container("a", resources("cpu", "250m", "memory", "9Gi"), nil)}, want: "1.25_9.0"},
		"several":     {containers: []corev1.Container{container("a", resources("cpu", "1"), nil), container("b", nil, resources("cpu", "1"))}, want: "1.00_3.5"},
		"large init":  {containers: []corev1.Container{container("a", resources("cpu", "1", "memory", "1Gi"), nil)}, init: []corev1.Container{container("b", resources("memory", "4Gi"), nil)}, want: "1.00_4.0"},
		"33 CPUs":     {containers: []corev1.Container{container("a", resources("cpu", "33"), nil)}, want: "48.00_96.0"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: corev1.PodSpec{Containers: c.containers, InitContainers: c.init}}
		err := cfg.completePod(pod)
		first := pod.Spec.Containers[0].Resources
		if err != nil || containerSize(&pod.Spec.Containers[0]).String() != c.want || first.Limits.Cpu().Cmp(*first.Requests.Cpu()) != 0 || first.Limits.Memory().Cmp(*first.Requests.Memory()) != 0 {
			t.Errorf("%s: %+v, %v, want %s", what, first, err, c.want)
		}
		if s := sumOf(pod.Spec.Containers); s.mebibytes%1024 != 0 || s.milliCPU%250 != 0 {
			t.Errorf("%s: the pod has %s", what, s)
		}
	}
	for what, containers := range map[string][]corev1.Container{"six": make([]corev1.Container, 6), "large": {container("a", resources("cpu", "65"), nil)}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: corev1.PodSpec{Containers: containers}}
		if err := cfg.completePod(pod); !errdefs.IsPermanent(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
