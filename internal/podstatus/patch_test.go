package podstatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// The generic way of Kubernetes' libraries is right, and slow: ours comes to the
// same, with a patch that is no larger.
func TestPatchDoesWhatTheGenericOneDoes(t *testing.T) {
	for seed := range uint64(500) {
		r := newRandom(seed)
		was := r.status()
		comparePatches(t, fmt.Sprint("seed ", seed), was, r.change(was))
		if t.Failed() {
			return
		}
	}
}

func FuzzPatch(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, first, second uint64) {
		was := newRandom(first).status()
		comparePatches(t, "these", was, newRandom(second).change(was))
	})
}

func comparePatches(t *testing.T, name string, was, is *corev1.PodStatus) {
	t.Helper()
	ours, err := Patch("u1", was, is)
	if err != nil {
		t.Fatal(err)
	}
	generic, err := genericPatch("u1", was, is)
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) > len(generic) {
		t.Errorf("%s: the patch is larger than the generic one:\n%s\n%s", name, ours, generic)
	}
	same := bytes.Equal(encode(t, asStored(t, was)), encode(t, asStored(t, is)))
	if Equal(was, is) != same || (ours == nil) != same {
		t.Errorf("%s: equal is %v, patch %q, but the same JSON is %v", name, Equal(was, is), ours, same)
	}
	got, expected := apply(t, was, ours), apply(t, was, generic)
	if !equality.Semantic.DeepEqual(got, expected) || !equality.Semantic.DeepEqual(got, asStored(t, is)) {
		t.Errorf("%s:\npatch %s\nmakes %s\ngeneric %s\nmakes %s\nwanted %s", name, ours, encode(t, got), generic, encode(t, expected), encode(t, is))
	}
}

// apply returns what the API server makes of a patch.
func apply(t *testing.T, was *corev1.PodStatus, patch []byte) *corev1.PodStatus {
	t.Helper()
	if patch == nil {
		return asStored(t, was)
	}
	result, err := strategicpatch.StrategicMergePatch(encode(t, corev1.Pod{Status: *was}), patch, corev1.Pod{})
	if err != nil {
		t.Fatalf("the API server takes no patch %s: %v", patch, err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(result, &pod); err != nil {
		t.Fatal(err)
	}
	if pod.UID != "u1" {
		t.Fatalf("patch %s is not guarded by the UID", patch)
	}
	return &pod.Status
}

// asStored is what the API keeps of a status.
func asStored(t *testing.T, s *corev1.PodStatus) *corev1.PodStatus {
	t.Helper()
	var stored corev1.PodStatus
	if err := json.Unmarshal(encode(t, s), &stored); err != nil {
		t.Fatal(err)
	}
	return &stored
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// No field of a status goes unseen, also none that a newer API adds.
func TestEachFieldCounts(t *testing.T) {
	fields := 0
	var walk func(name string, s *corev1.PodStatus, v reflect.Value)
	walk = func(name string, s *corev1.PodStatus, v reflect.Value) {
		change, undo := another(v)
		if change == nil {
			switch v.Kind() {
			case reflect.Pointer:
				v.Set(reflect.New(v.Type().Elem()))
				walk(name, s, v.Elem())
			case reflect.Slice:
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
				walk(name+"[0]", s, v.Index(0))
			case reflect.Struct:
				for i := range v.NumField() {
					walk(name+"."+v.Type().Field(i).Name, s, v.Field(i))
				}
			default:
				t.Fatalf("%s: no way to change a %s", name, v.Type())
			}
			return
		}
		fields++
		was := s.DeepCopy()
		change()
		if Equal(was, s) {
			t.Errorf("%s: a change is no difference: compare it in equal.go", name)
		}
		if !Equal(Share(s, was), s) || !Equal(Share(was, s), was) {
			t.Errorf("%s: what is not the same is shared", name)
		}
		comparePatches(t, name, was, s.DeepCopy())
		undo()
		if !Equal(was, s) {
			t.Errorf("%s: unequal without a change", name)
		}
	}
	var s corev1.PodStatus
	walk("status", &s, reflect.ValueOf(&s).Elem())
	if fields < 100 {
		t.Errorf("tried %d fields only", fields)
	}
}

// another changes a value that has no parts, for which it returns nil else.
func another(v reflect.Value) (change, undo func()) {
	to := reflect.New(v.Type()).Elem()
	switch v.Interface().(type) {
	case metav1.Time:
		to.Set(reflect.ValueOf(metav1.Unix(1700000000, 0)))
	case corev1.ResourceList, map[corev1.ResourceName]resource.Quantity:
		to.Set(reflect.ValueOf(map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("1")}).Convert(v.Type()))
	default:
		switch v.Kind() {
		case reflect.String:
			to.SetString("x")
		case reflect.Bool:
			to.SetBool(true)
		case reflect.Int32, reflect.Int64:
			to.SetInt(1)
		default:
			return nil, nil
		}
	}
	return func() { v.Set(to) }, func() { v.SetZero() }
}

// What cannot be merged by key is sent as it always was.
func TestRepeatedKeys(t *testing.T) {
	twice := &corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "10.0.0.1"}}}
	ours, err := Patch("u1", &corev1.PodStatus{}, twice)
	if err != nil {
		t.Fatal(err)
	}
	generic, _ := genericPatch("u1", &corev1.PodStatus{}, twice)
	if !bytes.Equal(ours, generic) {
		t.Errorf("got %s, want %s", ours, generic)
	}
}

func TestEqualOfNil(t *testing.T) {
	if some := new(corev1.PodStatus); !Equal(nil, nil) || Equal(nil, some) || Equal(some, nil) {
		t.Error("nil equals only nil")
	}
}
