package mock_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// admitted returns a pod with what admission and the environment of a node add.
func admitted(name string) *corev1.Pod {
	pod := newPod(name, "run-for", "1h")
	pod.ResourceVersion, pod.CreationTimestamp, pod.Finalizers = "1", metav1.Unix(1_800_000_000, 0), []string{"example.org/keep"}
	pod.Labels = map[string]string{"app": "web"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
	pod.Spec.NodeName, pod.Spec.RestartPolicy, pod.Spec.ActiveDeadlineSeconds = "vk", corev1.RestartPolicyAlways, new(int64(7200))
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "init", Image: "busybox"}, {Name: "side", Image: "busybox", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	main := &pod.Spec.Containers[0]
	main.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	for i := range 7 {
		main.Env = append(main.Env, corev1.EnvVar{Name: fmt.Sprint("KUBERNETES_", i), Value: "tcp://10.0.0.1:443"})
	}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

func TestPodIsAsItWasGiven(t *testing.T) {
	p := newProvider(t, mock.Config{})
	given := admitted("p")
	mustCreate(t, p, given.DeepCopy())
	want := func(given *corev1.Pod) {
		t.Helper()
		got, err := p.GetPod(ctx, "ns", "p")
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Phase != corev1.PodRunning {
			t.Errorf("the status is %+v", got.Status)
		}
		got.Status = corev1.PodStatus{}
		if !equality.Semantic.DeepEqual(got, given) {
			t.Errorf("got\n%+v, gave\n%+v", got, given)
		}
	}
	want(given)
	given.ResourceVersion, given.Generation, given.Labels["app"], given.Spec.Containers[0].Image = "2", 2, "other", "nginx:2"
	if err := p.UpdatePod(ctx, given.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	want(given)
}

func TestListShows(t *testing.T) {
	p := newProvider(t, mock.Config{})
	given := admitted("p")
	mustCreate(t, p, given.DeepCopy())
	pods, err := p.GetPods(ctx)
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	status := mustStatus(t, p, given)
	given.Status = *status
	if !equality.Semantic.DeepEqual(pods[0], given) || len(status.InitContainerStatuses) != 2 {
		t.Errorf("the list has\n%+v, not\n%+v", pods[0], given)
	}
}

// Measured are 62 %, so there is room.
func TestPodTakesLessMemoryThanItsObject(t *testing.T) {
	const count = 500
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprint("p", i)
	}
	objects := allocs.LiveHeap(func() (all []*corev1.Pod) {
		for _, name := range names {
			all = append(all, admitted(name))
		}
		return all
	})
	kept := allocs.LiveHeap(func() *mock.Provider {
		p := newProvider(t, mock.Config{})
		for _, name := range names {
			mustCreate(t, p, admitted(name))
		}
		return p
	})
	t.Logf("%d bytes a pod, of %d of its object without a status", kept/count, objects/count)
	if kept > objects*3/4 {
		t.Errorf("a pod takes %d bytes, and its object without a status %d", kept/count, objects/count)
	}
}
