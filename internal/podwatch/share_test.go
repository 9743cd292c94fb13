package podwatch

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// replica returns a pod of a ReplicaSet with what admission adds, as it comes from the API
// server: it has no memory in common with any other.
func replica(t testing.TB, i int, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	token := fmt.Sprintf("kube-api-access-%05d", i)
	at := metav1.Unix(1_800_000_000+int64(i), 0)
	var env []corev1.EnvVar
	for v := range 10 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprint("VAR_", v), Value: "a value"})
	}
	quantities := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("web-", i), Namespace: "default", UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), ResourceVersion: fmt.Sprint(1000 + i),
			CreationTimestamp: at, Labels: map[string]string{"app": "web", "pod-template-hash": "6b7f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "vk", ServiceAccountName: "default", SchedulerName: "default-scheduler", SecurityContext: &corev1.PodSecurityContext{},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))}},
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/web:1", Command: []string{"serve"}, Env: env, Resources: corev1.ResourceRequirements{Requests: quantities},
				VolumeMounts: []corev1.VolumeMount{{Name: token, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Volumes: []corev1.Volume{{Name: token, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			}}}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "192.0.2.1", PodIP: fmt.Sprint("198.51.100.", i), StartTime: &at,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	decoded := &corev1.Pod{}
	if err := decoded.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// Readers see no difference, and neither pod is written to.
func TestSharedPodIsTheSame(t *testing.T) {
	main := func(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[0] }
	changes := map[string]func(*corev1.Pod){
		"none":      func(*corev1.Pod) {},
		"labels":    func(pod *corev1.Pod) { pod.Labels["app"] = "other" },
		"no labels": func(pod *corev1.Pod) { pod.Labels = nil },
		"one more container": func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side"})
		},
		"another container": func(pod *corev1.Pod) {
			pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, corev1.Container{Name: "side", Env: []corev1.EnvVar{{Name: "VAR_0"}}})
		},
		"no volumes":        func(pod *corev1.Pod) { pod.Spec.Volumes, main(pod).VolumeMounts = nil, nil },
		"another variable":  func(pod *corev1.Pod) { main(pod).Env[3].Value = "another value" },
		"fewer variables":   func(pod *corev1.Pod) { main(pod).Env = main(pod).Env[:5] },
		"the same quantity": func(pod *corev1.Pod) { main(pod).Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0.1") },
		"no security":       func(pod *corev1.Pod) { pod.Spec.SecurityContext = nil },
		"seconds":           func(pod *corev1.Pod) { pod.Spec.Tolerations[0].TolerationSeconds = new(int64(5)) },
		"a volume's source": func(pod *corev1.Pod) { pod.Spec.Volumes[0].Projected = nil },
		"a huge quantity":   func(pod *corev1.Pod) { main(pod).Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1e30") },
		"a huger quantity":  func(pod *corev1.Pod) { main(pod).Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2e30") },
		"another image":     func(pod *corev1.Pod) { main(pod).Image = "registry.example/web:2" },
		"an ephemeral container": func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		},
		"as many other labels": func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web", "other": "6b7f"} },
		"no status":            func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} },
	}
	for name, change := range changes {
		for other, changeOther := range changes {
			pod, like := replica(t, 1, change), replica(t, 2, changeOther)
			wantPod, wantLike := pod.DeepCopy(), like.DeepCopy()
			got := share(pod, like, like)
			if !reflect.DeepEqual(got, wantPod) || !reflect.DeepEqual(pod, wantPod) || !reflect.DeepEqual(like, wantLike) {
				t.Errorf("a pod with %s, made to share with one with %s, is\n%+v, was\n%+v", name, other, got, wantPod)
			}
		}
	}
}

// The generated decoders leave slices room to grow, to which readers append.
func TestReadersOfSharedPodsAppend(t *testing.T) {
	three := func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	}
	model := replica(t, 1, three)
	if cap(model.Spec.InitContainers) == 3 {
		t.Fatal("the decoder leaves no room")
	}
	pods := NewPods()
	pods.replace([]*corev1.Pod{model, replica(t, 2, three), replica(t, 3, three)}, "9000")
	var all [][]corev1.Container
	for i := range 3 {
		pod, err := pods.Get("default", fmt.Sprint("web-", i+1))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, append(pod.Spec.InitContainers, corev1.Container{Name: pod.Name}))
	}
	for i, containers := range all {
		if got, want := containers[3].Name, fmt.Sprint("web-", i+1); got != want {
			t.Errorf("what is appended to the containers of %s is %s", want, got)
		}
	}
}

// Pods of one template take less memory together, as they come, once each has changed, and
// after the one that came first is gone. Measured are 50 % at most, so there is room.
func TestPodsOfOneTemplateTakeLessMemory(t *testing.T) {
	const count = 500
	whole := allocs.LiveHeap(func() (all []*corev1.Pod) {
		for i := range count {
			all = append(all, replica(t, i))
		}
		return all
	})
	for name, also := range map[string]func(*Pods){
		"new": func(*Pods) {},
		"updated": func(p *Pods) {
			for i := range count {
				p.set(replica(t, i, func(pod *corev1.Pod) { pod.Status.Message = "an update" }))
			}
		},
		"all but the first made again": func(p *Pods) {
			for i := range count {
				p.delete(replica(t, i))
				p.set(replica(t, i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			shared := allocs.LiveHeap(func() *Pods {
				p := NewPods()
				for i := range count {
					p.set(replica(t, i))
				}
				also(p)
				return p
			})
			t.Logf("%d bytes a pod, %d unless shared", shared/count, whole/count)
			if shared > whole*6/10 {
				t.Errorf("a pod takes %d bytes, of %d that it takes alone", shared/count, whole/count)
			}
		})
	}
}

// The conditions and containers of a pod come after the pod, with room to grow and strings of
// their own. Measured are 70 % at most, so there is room.
func TestStatusesOfOneTemplateTakeLessMemory(t *testing.T) {
	const count = 500
	pending := func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: corev1.PodPending} }
	running := func(pod *corev1.Pod) {
		pod.Status.Conditions = nil
		for _, condition := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp})
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Image: "registry.example/web:1", ImageID: "registry.example/web@sha256:" + strings.Repeat("0", 64), Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
		}}
	}
	status := func(i int) corev1.PodStatus { return replica(t, i, running).Status }
	alone := allocs.LiveHeap(func() (all []corev1.PodStatus) {
		for i := range count {
			all = append(all, status(i))
		}
		return all
	})
	pods := func(change ...func(*corev1.Pod)) *Pods {
		p := NewPods()
		for i := range count {
			p.set(replica(t, i, pending))
			for _, f := range change {
				p.set(replica(t, i, f))
			}
		}
		return p
	}
	without := allocs.LiveHeap(func() *Pods { return pods() })
	with := allocs.LiveHeap(func() *Pods { return pods(running) })
	took := with - without + count*int64(reflect.TypeFor[corev1.PodStatus]().Size())
	t.Logf("%d bytes a status, %d unless shared", took/count, alone/count)
	if took > alone*8/10 {
		t.Errorf("a status takes %d bytes, of %d that it takes alone", took/count, alone/count)
	}
}

// What others are compared with is kept no longer than its pod.
func TestModelsAreForgotten(t *testing.T) {
	p := NewPods()
	ownedBy := func(owner types.UID) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = owner }
	}
	p.replace(nil, "1")
	p.set(replica(t, 1, ownedBy("a")))
	p.set(replica(t, 2, ownedBy("b")))
	p.set(replica(t, 3, ownedBy("b")))
	p.set(replica(t, 1, ownedBy("c"))) // adopted
	for i := range 3 {
		for template, model := range p.models {
			if p.pods[keyOf(model)] != model || templateOf(model) != template {
				t.Errorf("the model of %s is %s, which is not kept", template, model.Name)
			}
		}
		p.delete(replica(t, i+1))
	}
	if len(p.models) > 0 {
		t.Errorf("of %d pods there are %d models", len(p.pods), len(p.models))
	}
}

func BenchmarkShare(b *testing.B) {
	pod, like := replica(b, 1), replica(b, 2)
	b.ReportAllocs()
	for b.Loop() {
		share(pod, like, like)
	}
}
