package mock_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// fill sets all fields of a value, and counts those that have no parts.
func fill(t *testing.T, v reflect.Value, count *int) {
	*count++
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		*value = metav1.Unix(int64(1_700_000_000+*count), 0)
		return
	case *resource.Quantity:
		*value = *resource.NewQuantity(int64(*count), resource.DecimalSI)
		return
	case *intstr.IntOrString:
		*value = intstr.FromString(fmt.Sprint("port-", *count))
		return
	case *metav1.FieldsV1:
		value.SetRawString(`{"f:metadata":{}}`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text-", *count))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(*count))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), count)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), count)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, count)
		fill(t, value, count)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), count)
		}
	default:
		t.Fatalf("no way to fill a %s", v.Type())
	}
}

// Each field of a pod is as it was given, also one that a newer API adds, but for its status and kind.
func TestEachFieldIsAsItWasGiven(t *testing.T) {
	count := 0
	given := &corev1.Pod{}
	fill(t, reflect.ValueOf(given).Elem(), &count)
	if count < 1000 {
		t.Errorf("there are %d fields only", count)
	}
	given.TypeMeta, given.Status = metav1.TypeMeta{}, corev1.PodStatus{QOSClass: "unknown", Phase: "unknown"}
	p := newProvider(t, mock.Config{})
	mustCreate(t, p, given.DeepCopy())
	want := func(got *corev1.Pod, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.QOSClass != "unknown" {
			t.Errorf("the class is %q", got.Status.QOSClass)
		}
		got = got.DeepCopy()
		got.Status = given.Status
		if !equality.Semantic.DeepEqual(got, given) {
			t.Errorf("got\n%+v, gave\n%+v", got, given)
		}
	}
	want(p.GetPod(ctx, given.Namespace, given.Name))
	given.Labels, given.ManagedFields, given.Generation = nil, nil, given.Generation+1
	if err := p.UpdatePod(ctx, given.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	pods, err := p.GetPods(ctx)
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	want(pods[0], nil)
}

// What a caller changes afterwards, of what it gave or got, is its own.
func TestPodsAreNotShared(t *testing.T) {
	p := newProvider(t, mock.Config{})
	notified, alsoNotified := make(chan *corev1.Pod, 10), make(chan *corev1.Pod, 10)
	for _, to := range []chan *corev1.Pod{notified, alsoNotified} {
		p.NotifyPods(ctx, func(pod *corev1.Pod) { to <- pod })
	}
	given := admitted("p")
	given.Status.QOSClass = corev1.PodQOSBurstable
	given.Spec.ActiveDeadlineSeconds = new(int64(7200))
	original := given.DeepCopy()
	mustCreate(t, p, given)
	spoil := func(pod *corev1.Pod) {
		if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil {
			*deadline = 0
		}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].Image = "spoilt"
				for name := range list[i].Resources.Requests {
					list[i].Resources.Requests[name] = resource.MustParse("99")
				}
			}
		}
		for key := range pod.Labels {
			pod.Labels[key] = "spoilt"
		}
		for i := range pod.Status.ContainerStatuses {
			s := &pod.Status.ContainerStatuses[i]
			for name := range s.AllocatedResources {
				s.AllocatedResources[name] = resource.MustParse("99")
			}
			for name := range s.Resources.Requests {
				s.Resources.Requests[name] = resource.MustParse("99")
			}
		}
	}
	check := func(after string) {
		t.Helper()
		got, err := p.GetPod(ctx, "ns", "p")
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Phase != corev1.PodRunning || !equality.Semantic.DeepEqual(got.Status.ContainerStatuses[0].AllocatedResources, original.Spec.Containers[0].Resources.Requests) {
			t.Errorf("after a change of %s the pod is %s, with %v", after, got.Status.Phase, got.Status.ContainerStatuses[0].AllocatedResources)
		}
		got.Status = original.Status
		if !equality.Semantic.DeepEqual(got, original) {
			t.Errorf("after a change of %s it is %+v", after, got)
		}
	}
	spoil(<-notified)
	check("what was notified")
	if other := <-alsoNotified; other.Spec.Containers[0].Image != original.Spec.Containers[0].Image || other.Labels["app"] != original.Labels["app"] {
		t.Errorf("what one was notified of is what another one has: %+v", other)
	}
	spoil(given)
	check("what was created")
	updated := original.DeepCopy()
	if err := p.UpdatePod(ctx, updated); err != nil {
		t.Fatal(err)
	}
	spoil(updated)
	check("what was updated")
	got, err := p.GetPod(ctx, "ns", "p")
	if err != nil {
		t.Fatal(err)
	}
	spoil(got)
	check("what GetPod returned")
	pods, err := p.GetPods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	spoil(pods[0])
	check("what GetPods returned")
}

// Pods that are updated, deleted, created again and read at the same time are never halves of two.
func TestConcurrentPodsAreWhole(t *testing.T) {
	p := newProvider(t, mock.Config{})
	version := func(i int) *corev1.Pod {
		pod := admitted("p")
		text := fmt.Sprint(i)
		pod.UID, pod.Labels["version"], pod.Annotations["version"] = types.UID(fmt.Sprint("uid-", i/10)), text, text
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Env[0].Value = "image:"+text, text
		return pod
	}
	isWhole := func(pod *corev1.Pod) {
		text, c := pod.Labels["version"], &pod.Spec.Containers[0]
		var i int
		_, err := fmt.Sscan(text, &i)
		if err != nil || string(pod.UID) != fmt.Sprint("uid-", i/10) || pod.Annotations["version"] != text || c.Image != "image:"+text || len(c.Env) > 0 && c.Env[0].Value != text ||
			len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].Image != "image:"+text {
			t.Errorf("version %s is %+v", text, pod)
		}
	}
	p.NotifyPods(ctx, isWhole)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				pods, err := p.GetPods(ctx)
				if err != nil {
					t.Error(err)
				}
				if one, err := p.GetPod(ctx, "ns", "p"); err == nil {
					pods = append(pods, one)
				} else if !errdefs.IsNotFound(err) {
					t.Error(err)
				}
				for _, pod := range pods {
					isWhole(pod)
				}
			}
		})
	}
	for i := range 300 {
		pod := version(i)
		var err error
		if i%10 == 0 {
			err = p.CreatePod(ctx, pod)
		} else {
			err = p.UpdatePod(ctx, pod)
		}
		if err != nil {
			t.Error(err)
		}
		if i%10 == 9 {
			pod.DeletionGracePeriodSeconds = new(int64)
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
			if err := p.DeletePod(ctx, pod); err != nil {
				t.Error(err)
			}
		}
	}
	close(done)
	readers.Wait()
}
