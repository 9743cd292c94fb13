package nodeutil_test

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// vandal changes all of the pods that it is given, once it has copied them.
type vandal struct {
	tiny
	harmed atomic.Int32 // pods
}

func (p *vandal) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	defer p.harm(pod)
	return p.tiny.CreatePod(ctx, pod.DeepCopy())
}

func (p *vandal) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	defer p.harm(pod)
	return p.tiny.UpdatePod(ctx, pod.DeepCopy())
}

func (p *vandal) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	defer p.harm(pod)
	return p.tiny.DeletePod(ctx, pod.DeepCopy())
}

func (p *vandal) harm(pod *corev1.Pod) {
	harm(reflect.ValueOf(pod).Elem())
	p.harmed.Add(1)
}

// harm changes all strings of a value, in place.
func harm(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString("harmed")
		}
	case reflect.Pointer:
		if !v.IsNil() {
			harm(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			harm(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				harm(v.Field(i))
			}
		}
	}
}

// Pods of one template share memory in the cache, and providers may do with the pods that they
// are given what they like.
func TestProviderThatChangesItsPodsHarmsNoOther(t *testing.T) {
	client := fake.NewSimpleClientset()
	p := &vandal{}
	var pods corev1listers.PodNamespaceLister
	_, stop := start(t, client, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		pods = cfg.Pods.Pods("default")
		return nodeutil.AsProvider(p), nil, nil
	})
	running := func(name string) func() bool {
		return func() bool {
			pod, err := pods.Get(name)
			return err == nil && pod.Status.Phase == corev1.PodRunning
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		replica := pod(name, "vk")
		replica.Labels = map[string]string{"app": "web"}
		replica.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
		replica.Spec.Tolerations = []corev1.Toleration{{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists}}
		replica.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), replica, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "pod "+name+" runs", running(name))
	}
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the provider has changed the three pods that it created, and the one that it deleted", func() bool { return p.harmed.Load() >= 4 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b, errB := pods.Get("b")
	c, errC := pods.Get("c")
	if errB != nil || errC != nil {
		t.Fatal(errB, errC)
	}
	if &b.Spec.Tolerations[0] != &c.Spec.Tolerations[0] || &b.Spec.Containers[0].Env[0] != &c.Spec.Containers[0].Env[0] {
		t.Error("the pods share nothing, so that this test shows nothing")
	}
	for _, pod := range []*corev1.Pod{b, c} {
		want, err := client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want.ManagedFields = nil; !apiequality.Semantic.DeepEqual(pod.ObjectMeta, want.ObjectMeta) || !apiequality.Semantic.DeepEqual(pod.Spec, want.Spec) {
			t.Errorf("pod %s is\n%+v in the cache, but\n%+v in the API", pod.Name, pod, want)
		}
	}
}
