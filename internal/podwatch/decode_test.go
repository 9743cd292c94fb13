package podwatch

import (
	"bytes"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

func clientNegotiator() runtime.ClientNegotiator {
	return runtime.NewClientNegotiator(rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion(), corev1.SchemeGroupVersion)
}

// general decodes as client-go does.
func general(t testing.TB) runtime.Decoder {
	t.Helper()
	decoder, err := clientNegotiator().Decoder(runtime.ContentTypeProtobuf, nil)
	if err != nil {
		t.Fatal(err)
	}
	return decoder
}

// encodeMore returns the encoding of a pod with further fields at its end.
func encodeMore(t testing.TB, further ...byte) []byte {
	t.Helper()
	pod, err := apiPod(newer).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return encodeRaw(t, append(pod, further...))
}

// encodeRaw returns the encoding of a pod that is encoded as these bytes.
func encodeRaw(t testing.TB, pod []byte) []byte {
	t.Helper()
	data, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: pod}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), data...)
}

// fill sets all that there is in a value, of a list or map one element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if q, ok := v.Addr().Interface().(*resource.Quantity); ok {
			*q = resource.MustParse("64Mi") // its text is not kept when it is decoded, unlike that of 1Mi
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() { // not those of times
				fill(field)
			}
		}
	}
}

// Others read what is known while it is compared with what comes: it is not written to, however it became known.
// Some quantities keep their text when they are first encoded.
func TestKnownIsOnlyRead(t *testing.T) {
	whole := func(pod *corev1.Pod) {
		fill(reflect.ValueOf(&pod.Spec).Elem())
		fill(reflect.ValueOf(&pod.Status).Elem())
		pod.Spec.NodeName = "vk"
	}
	sent := encode(t, apiPod(whole))
	list := encode(t, &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*apiPod(whole)}})
	for way, known := range map[string]func() *corev1.Pod{
		"an event": func() *corev1.Pod { return knowing(nil).event(sent) },
		"an event that client-go has decoded": func() *corev1.Pod {
			object, _, err := decoder{general(t), func([]byte) *corev1.Pod { return nil }}.Decode(sent, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return object.(*corev1.Pod)
		},
		"a list": func() *corev1.Pod {
			pods, err := answered(t, rest.Config{}, runtime.ContentTypeProtobuf, list).Pods("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return &pods.Items[0]
		},
	} {
		pod := known()
		before := pod.DeepCopy()
		next := knowing(pod).event(encode(t, apiPod(whole, newer)))
		if &next.Spec.Containers[0] != &pod.Spec.Containers[0] || &next.Status.Conditions[0] != &pod.Status.Conditions[0] {
			t.Errorf("what %s has shown was decoded again", way)
		}
		if !reflect.DeepEqual(pod, before) {
			t.Errorf("what %s has shown was written to", way)
		}
	}
}

// Regardless of what is sent, a pod is what client-go makes of it, but for the managed fields.
func FuzzPodIsClientGos(f *testing.F) {
	for _, change := range []func(*corev1.Pod){newer, func(pod *corev1.Pod) { pod.UID = "other" }, func(pod *corev1.Pod) { *pod = corev1.Pod{TypeMeta: pod.TypeMeta} }} {
		f.Add(encode(f, apiPod(change)))
	}
	f.Add(encodeMore(f, 0x1a, 0x00))                  // a status twice
	f.Add(encodeMore(f, 0x22, 0x01, 'x'))             // a field of a newer version
	f.Add(encodeMore(f, 0x12, 0x03, 0x1a, 0x01, 'x')) // a restart policy in a second spec
	decoder, known := general(f), knowing(nil).event(encode(f, apiPod()))
	f.Fuzz(func(t *testing.T, data []byte) {
		object, _, err := decoder.Decode(data, nil, nil)
		want, ok := object.(*corev1.Pod)
		if err != nil || !ok {
			return
		}
		want.ManagedFields = nil
		wanted, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []*podDecoder{knowing(nil), knowing(known)} {
			pod := d.event(data)
			if pod == nil || pod == known { // of the version that is known
				continue
			}
			if got, err := pod.Marshal(); err != nil || !bytes.Equal(got, wanted) {
				t.Errorf("got %+v and the error %v, want %+v", pod, err, want)
			}
		}
	})
}
