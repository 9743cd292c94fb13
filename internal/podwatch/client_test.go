package podwatch

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// apiPod returns a pod as an API server has it.
func apiPod(change ...func(*corev1.Pod)) *corev1.Pod {
	at := metav1.Unix(1_800_000_000, 0)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "uid", ResourceVersion: "7", Generation: 1, CreationTimestamp: at,
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}, {Manager: "kubelet", FieldsV1: metav1.NewFieldsV1("{}")}},
		},
		Spec: corev1.PodSpec{
			NodeName: "vk", NodeSelector: map[string]string{"a": "b", "c": "d"},
			Containers: []corev1.Container{{Name: "main", Image: "registry.example/web:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &at, PodIP: "192.0.2.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// cached is the pod as the cache of the watch has it.
func cached(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.TypeMeta, pod.ManagedFields = metav1.TypeMeta{}, nil
	return pod
}

func encode(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &encoded); err != nil {
		t.Fatal(err)
	}
	return encoded.Bytes()
}

func knowing(pod *corev1.Pod) *podDecoder {
	return &podDecoder{known: func(node, namespace, name string) *corev1.Pod {
		if pod == nil || node != pod.Spec.NodeName || namespace != pod.Namespace || name != pod.Name {
			return nil
		}
		return pod
	}}
}

func newer(pod *corev1.Pod) { pod.ResourceVersion = "8" }

// Regardless of what is known, a pod is what the API server has sent, and what is known is not written to.
func TestPodIsWhatWasSent(t *testing.T) {
	changes := map[string]func(*corev1.Pod){
		"nothing":    func(*corev1.Pod) {},
		"uid":        func(pod *corev1.Pod) { pod.UID = "other" },
		"labels":     func(pod *corev1.Pod) { pod.Labels["app"] = "other" },
		"deletion":   func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.Generation = new(metav1.Unix(1_800_000_060, 0)), 2 },
		"image":      func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "registry.example/web:2" },
		"as long":    func(pod *corev1.Pod) { pod.Spec.Containers[0].Env[0].Value = "c" },
		"node":       func(pod *corev1.Pod) { pod.Spec.NodeName = "other" },
		"phase":      func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
		"no managed": func(pod *corev1.Pod) { pod.ManagedFields = nil },
		"no version": func(pod *corev1.Pod) { pod.ResourceVersion, pod.Status.Phase = "", corev1.PodFailed },
		"empty":      func(pod *corev1.Pod) { *pod = corev1.Pod{TypeMeta: pod.TypeMeta} },
	}
	for name, change := range changes {
		for _, known := range []*corev1.Pod{nil, cached(apiPod()), cached(apiPod(changes["phase"])), cached(apiPod(changes["image"])), cached(apiPod(func(pod *corev1.Pod) { pod.ResourceVersion = "" }))} {
			before := known.DeepCopy()
			sent := apiPod(newer, change)
			for way, decode := range map[string]func(*podDecoder, []byte) *corev1.Pod{"event": (*podDecoder).event, "answer": (*podDecoder).answer} {
				if got := decode(knowing(known), encode(t, sent)); !reflect.DeepEqual(got, cached(sent)) {
					t.Errorf("the %s of a change of %s is\n%+v, sent was\n%+v", way, name, got, sent)
				}
			}
			if !reflect.DeepEqual(known, before) {
				t.Errorf("a change of %s was written to the pod that was known", name)
			}
		}
	}
}

// What is known is not decoded again.
func TestKnownPartsAreShared(t *testing.T) {
	known := cached(apiPod())
	d := knowing(known)
	status := d.event(encode(t, apiPod(newer, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })))
	if &status.Spec.Containers[0] != &known.Spec.Containers[0] {
		t.Error("a spec was decoded that is known")
	}
	deleted := d.event(encode(t, apiPod(newer, func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = new(int64(0)) })))
	if &deleted.Spec.Containers[0] != &known.Spec.Containers[0] || &deleted.Status.Conditions[0] != &known.Status.Conditions[0] {
		t.Error("a spec or a status was decoded that is known")
	}
	if again := d.event(encode(t, apiPod())); again != known {
		t.Error("a pod was decoded that is known")
	}
}

// An answer and its event have one pod in memory, whichever comes first, and nothing is kept of
// answers that the watch has overtaken.
func TestAnswersAreEvents(t *testing.T) {
	d := knowing(cached(apiPod()))
	data := encode(t, apiPod(newer))
	answer := d.answer(data)
	old := d.event(encode(t, apiPod()))
	if got := d.event(data); got != answer || got == old {
		t.Error("the event of an answer was decoded again")
	}
	if len(d.answers) != 0 {
		t.Errorf("%d answers are kept that the watch has shown", len(d.answers))
	}
	d.answer(data)
	if got := d.event(encode(t, apiPod(func(pod *corev1.Pod) { pod.ResourceVersion = "9" }))); got.ResourceVersion != "9" || len(d.answers) != 0 {
		t.Errorf("version %s after version 9, and %d answers are kept", got.ResourceVersion, len(d.answers))
	}
	shown := cached(apiPod(newer))
	d = knowing(shown)
	if got := d.answer(data); got != shown || len(d.answers) != 0 {
		t.Error("an answer was decoded, or is kept, that the watch has shown before")
	}
	knowing(nil).answer(data)
}

// Answers without events do not add up.
func TestAnswersAreBounded(t *testing.T) {
	var known *corev1.Pod
	d := &podDecoder{known: func(string, string, string) *corev1.Pod { return known }}
	for i := range 3 * maxAnswers {
		other := func(pod *corev1.Pod) { pod.UID = types.UID(strings.Repeat("u", i+1)) }
		known = cached(apiPod(other))
		d.answer(encode(t, apiPod(other, newer)))
	}
	if len(d.answers) > maxAnswers {
		t.Errorf("%d answers are kept", len(d.answers))
	}
}

// All that is no pod, or cannot be read as one, is the general decoder's.
func TestNoPod(t *testing.T) {
	d := knowing(nil)
	whole := encode(t, apiPod())
	for name, data := range map[string][]byte{
		"nothing":        nil,
		"JSON":           []byte(`{"apiVersion":"v1","kind":"Pod"}`),
		"a status":       encode(t, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}),
		"a list of pods": encode(t, &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}),
		"half a pod":     whole[:len(whole)/2],
		"broken":         append([]byte("k8s\x00"), 0xff, 0xff),
		"two statuses":   encodeMore(t, 0x1a, 0x00),
		"a number":       encodeRaw(t, []byte{0x18, 0x01}), // in place of the status
	} {
		if pod := d.event(data); pod != nil {
			t.Errorf("%s is taken for pod %+v", name, pod)
		}
	}
}

// server answers every request with a pod, in protobuf if it is asked for.
func server(t *testing.T, pod *corev1.Pod) corev1client.PodsGetter {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.Method == http.MethodPatch {
			path = strings.TrimSuffix(path, "/status")
		}
		if path != "/prefix/api/v1/namespaces/default/pods/web" {
			http.NotFound(w, r)
			return
		}
		if body, err := io.ReadAll(r.Body); err != nil || r.Method == http.MethodDelete && string(body) != `{"gracePeriodSeconds":0,"preconditions":{"uid":"uid"}}` {
			http.Error(w, string(body), http.StatusTeapot)
			return
		}
		if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(encode(t, pod))
		}
	}))
	t.Cleanup(s.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL + "/prefix"})
	if err != nil {
		t.Fatal(err)
	}
	known := cached(apiPod())
	return newClient(client, func(string, string, string) *corev1.Pod { return known })
}

func TestRequests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent := apiPod(newer)
	pods := server(t, sent).Pods("default")
	got, err := pods.Patch(ctx, "web", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
	if err != nil || !reflect.DeepEqual(got, cached(sent)) {
		t.Errorf("got %+v and the error %v, sent was %+v", got, err, sent)
	}
	if _, err := pods.Patch(ctx, "other", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{}, "status"); err == nil {
		t.Error("no error for a path that is not found")
	}
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions("uid")
	if err := pods.Delete(ctx, "web", *options); err != nil {
		t.Error(err)
	}
	if err := pods.Delete(ctx, "other", *options); err == nil {
		t.Error("no error for a pod that is not found")
	}
}

// A fake has no requests that could be made otherwise.
func TestFakesAreLeftAlone(t *testing.T) {
	client := fake.NewSimpleClientset(cached(apiPod()))
	if _, err := newClient(client, nil).Pods("default").Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, changed := newClient(client, nil).(*leanPods); changed {
		t.Error("a fake clientset was replaced")
	}
}

// Only protobuf is decoded here.
func TestNegotiation(t *testing.T) {
	n := negotiator{clientNegotiator(), knowing(nil)}
	for kind, ours := range map[string]bool{runtime.ContentTypeProtobuf: true, runtime.ContentTypeJSON: false} {
		events, _, _, err := n.StreamDecoder(kind, nil)
		if _, is := events.(decoder); is != ours || err != nil {
			t.Errorf("events of %s are decoded here: %v, error %v", kind, is, err)
		}
	}
}

// A watch shows what was sent, regardless of the size of what comes before and after.
func TestWatch(t *testing.T) {
	var all []*corev1.Pod
	var stream bytes.Buffer
	frame := protobuf.LengthDelimitedFramer.NewFrameWriter(&stream)
	for i, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted} {
		pod := apiPod(func(pod *corev1.Pod) {
			pod.ResourceVersion, pod.Status.Message = strconv.Itoa(8+i), strings.Repeat("m", 900*(4-i))
		})
		all = append(all, cached(pod))
		event, err := (&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encode(t, pod)}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := frame.Write(event); err != nil {
			t.Fatal(err)
		}
	}
	header := http.Header{"Content-Type": {runtime.ContentTypeProtobuf + ";stream=watch"}}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api.example"}, &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(&stream)}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	known := cached(apiPod())
	events, err := newClient(client, func(string, string, string) *corev1.Pod { return known }).Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var shown []*corev1.Pod
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("%s of %+v", event.Type, event.Object)
		}
		shown = append(shown, pod)
	}
	if len(shown) != len(all) {
		t.Fatalf("the watch has shown %d pods, sent were %d", len(shown), len(all))
	}
	for i := range all {
		if !reflect.DeepEqual(shown[i], all[i]) {
			t.Errorf("as number %d the watch has shown another pod than was sent", i)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
