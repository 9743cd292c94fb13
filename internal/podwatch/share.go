package podwatch

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// templateOf returns the UID of the controller that has made a pod, or "" if none has: pods of
// one template are alike.
func templateOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// share returns a copy of pod in which what is equal to a part of like is that part: strings,
// and whole maps, slices and pointers; and what is new in its status, to a part of model's.
// like is the pod before, where there was one, which has the most in common with it, and model
// another pod of the template, from which it has its spec; they may be the same. None of them is
// written to, as the caller may not be the only one that has them.
func share(pod, like, model *corev1.Pod) *corev1.Pod {
	shared := *pod
	shareValue(reflect.ValueOf(&shared).Elem(), reflect.ValueOf(like).Elem())
	if status := reflect.ValueOf(&shared.Status).Elem(); model != like && !equal(status, reflect.ValueOf(&like.Status).Elem()) {
		shareValue(status, reflect.ValueOf(&model.Status).Elem())
	}
	return &shared
}

// shareValue replaces what is equal in into, which is settable and nobody else's.
func shareValue(into, like reflect.Value) {
	switch into.Kind() {
	case reflect.String:
		if into.String() == like.String() {
			into.Set(like)
		}
	case reflect.Pointer, reflect.Map:
		if !into.IsNil() && equal(into, like) {
			into.Set(like)
		}
	case reflect.Slice:
		if into.Len() == 0 || like.Len() == 0 && into.Cap() == into.Len() {
			return
		}
		if equal(into, like) {
			// Without room to grow: what readers append to the containers of one pod is not seen
			// by those who append to the containers of another.
			into.Set(like.Slice3(0, like.Len(), like.Len()))
			return
		}
		// The decoder leaves room: five conditions have that of eight.
		own := reflect.MakeSlice(into.Type(), into.Len(), into.Len())
		reflect.Copy(own, into)
		for i := range min(into.Len(), like.Len()) {
			shareValue(own.Index(i), like.Index(i))
		}
		into.Set(own)
	case reflect.Struct:
		for i := range into.NumField() {
			if field := into.Field(i); field.CanSet() { // not those of times and quantities
				shareValue(field, like.Field(i))
			}
		}
	}
}

// equal is reflect.DeepEqual for the values of a pod, in which nothing points back at what has
// it: it need not remember what it has seen, which is most of the work of reflect.DeepEqual.
func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		return a.UnsafePointer() == b.UnsafePointer() || !a.IsNil() && !b.IsNil() && equal(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return equalMaps(a, b)
	case reflect.Struct:
		for i := range a.NumField() {
			if !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	default:
		return a.Equal(b)
	}
}

func equalMaps(a, b reflect.Value) bool {
	if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
		return false
	}
	if a.UnsafePointer() == b.UnsafePointer() {
		return true
	}
	if a.CanAddr() && b.CanAddr() && a.CanInterface() {
		if labels, ok := a.Addr().Interface().(*map[string]string); ok { // without a copy of each key and value
			return maps.Equal(*labels, *b.Addr().Interface().(*map[string]string))
		}
	}
	for entries := a.MapRange(); entries.Next(); {
		other := b.MapIndex(entries.Key())
		if !other.IsValid() || !equal(entries.Value(), other) {
			return false
		}
	}
	return true
}
