package podwatch

import (
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
// and whole maps, slices and pointers. Neither pod is written to, as the caller may not be the
// only one that has them.
func share(pod, like *corev1.Pod) *corev1.Pod {
	shared := *pod
	shareValue(reflect.ValueOf(&shared).Elem(), reflect.ValueOf(like).Elem())
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
		if !into.IsNil() && !like.IsNil() && reflect.DeepEqual(into.Interface(), like.Interface()) {
			into.Set(like)
		}
	case reflect.Slice:
		if into.Len() == 0 || like.Len() == 0 {
			return
		}
		if reflect.DeepEqual(into.Interface(), like.Interface()) {
			// Without room to grow: what readers append to the containers of one pod is not seen
			// by those who append to the containers of another.
			into.Set(like.Slice3(0, like.Len(), like.Len()))
			return
		}
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
