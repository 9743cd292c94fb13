package podobjects_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
)

// fill sets every field of v, slices and pointers to one element, and every
// string to its path.
func fill(v reflect.Value, path string, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), path, depth-1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path, depth)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), path+"."+v.Type().Field(i).Name, depth)
			}
		}
	case reflect.String:
		v.SetString(path)
	}
}

// Each place of the pod API that can name a Secret or a ConfigMap counts, also
// one that a newer API brings.
func TestEveryReferenceCounts(t *testing.T) {
	for _, c := range []struct {
		what string
		pod  func() (*corev1.Pod, any)
	}{
		{"image pull secret", func() (*corev1.Pod, any) {
			p := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: make([]corev1.LocalObjectReference, 1)}}
			return p, &p.Spec.ImagePullSecrets[0]
		}},
		{"env", func() (*corev1.Pod, any) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: make([]corev1.EnvVar, 1)}}}}
			return p, &p.Spec.Containers[0].Env[0]
		}},
		{"envFrom", func() (*corev1.Pod, any) {
			p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{EnvFrom: make([]corev1.EnvFromSource, 1)}}}}
			return p, &p.Spec.InitContainers[0].EnvFrom[0]
		}},
		{"ephemeral env", func() (*corev1.Pod, any) {
			p := &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: make([]corev1.EphemeralContainer, 1)}}
			p.Spec.EphemeralContainers[0].Env = make([]corev1.EnvVar, 1)
			return p, &p.Spec.EphemeralContainers[0].Env[0]
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			pod, part := c.pod()
			fill(reflect.ValueOf(part).Elem(), "", 4)
			wantAllNamed(t, pod, part)
		})
	}
	sources := reflect.TypeFor[corev1.VolumeSource]()
	for i := range sources.NumField() {
		t.Run("volume "+sources.Field(i).Name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: make([]corev1.Volume, 1)}}
			source := reflect.ValueOf(&pod.Spec.Volumes[0].VolumeSource).Elem().Field(i)
			fill(source, sources.Field(i).Name, 4)
			wantAllNamed(t, pod, source.Interface())
		})
	}
}

// wantAllNamed wants the references of pod to be what part has of names of
// Secrets and ConfigMaps.
func wantAllNamed(t *testing.T, pod *corev1.Pod, part any) {
	t.Helper()
	pod.Namespace = "default"
	got := podobjects.References(pod)
	want := map[podenv.Object]bool{}
	var walk func(v reflect.Value, kind string)
	walk = func(v reflect.Value, kind string) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), kind)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), kind)
			}
		case reflect.Struct:
			switch v.Type() {
			case reflect.TypeFor[corev1.ConfigMapEnvSource](), reflect.TypeFor[corev1.ConfigMapKeySelector](),
				reflect.TypeFor[corev1.ConfigMapVolumeSource](), reflect.TypeFor[corev1.ConfigMapProjection]():
				kind = "ConfigMap"
			case reflect.TypeFor[corev1.PersistentVolumeClaimSpec]():
				return // of volumes
			}
			for i := range v.NumField() {
				field, name := v.Field(i), v.Type().Field(i).Name
				switch {
				case field.Type() == reflect.TypeFor[corev1.LocalObjectReference]():
					want[podenv.Object{Kind: kind, Namespace: "default", Name: field.FieldByName("Name").String()}] = true
				case name == "SecretName" && field.Kind() == reflect.String:
					want[podenv.Object{Kind: "Secret", Namespace: "default", Name: field.String()}] = true
				default:
					walk(field, kind)
				}
			}
			if v.Type() == reflect.TypeFor[corev1.LocalObjectReference]() {
				want[podenv.Object{Kind: kind, Namespace: "default", Name: v.FieldByName("Name").String()}] = true
			}
		}
	}
	walk(reflect.ValueOf(part), "Secret")
	for object := range want {
		if _, ok := got[object]; !ok {
			t.Errorf("%v is not among the references %v", object, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("references: %v, want %v", got, want)
	}
}
