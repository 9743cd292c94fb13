package nodeutil

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// answering returns a client whose requests are answered with an object, without a network, and shown to see.
func answering(t *testing.T, content rest.ContentConfig, code int, object runtime.Object, see func(*http.Request)) kubernetes.Interface {
	t.Helper()
	var body bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &body); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {runtime.ContentTypeProtobuf}}
	config := &rest.Config{Host: "http://api.example", QPS: -1, ContentConfig: content}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		see(request)
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body.Bytes()))}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

var inProtobuf = rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}

func anEvent() *corev1.Event {
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "u1", APIVersion: "v1"},
		Reason:         "Fine", Message: "message", Type: corev1.EventTypeNormal, Count: 1,
	}
}

func TestEventSink(t *testing.T) {
	var method, path, accept, sent string
	see := func(request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		method, path, accept, sent = request.Method, request.URL.Path, request.Header.Get("Accept"), string(body)
	}
	event := anEvent()
	got, err := newEventSink(answering(t, inProtobuf, http.StatusCreated, event, see)).Create(event)
	if err != nil || got != event {
		t.Errorf("got %v and the error %v", got, err)
	}
	if method != http.MethodPost || path != "/api/v1/namespaces/default/events" || !strings.Contains(accept, "as=PartialObjectMetadata") || !strings.Contains(sent, "message") {
		t.Errorf("%s %s with Accept %q was asked for, with %q", method, path, accept, sent)
	}
	refused := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonAlreadyExists, Code: http.StatusConflict}
	if _, err := newEventSink(answering(t, inProtobuf, http.StatusConflict, refused, see)).Create(event); !apierrors.IsAlreadyExists(err) {
		t.Errorf("an event that exists gets the error %v", err)
	}
	path = ""
	for _, namespace := range []string{"", "..", "a/b"} {
		event.Namespace = namespace
		if _, err := newEventSink(answering(t, inProtobuf, http.StatusCreated, event, see)).Create(event); err == nil || path != "" {
			t.Errorf("in namespace %q: %v, with a request for %q", namespace, err, path)
		}
	}
}

// Who has configured JSON has a reason for it.
func TestEventSinkOfJSON(t *testing.T) {
	client := answering(t, rest.ContentConfig{ContentType: runtime.ContentTypeJSON}, http.StatusCreated, anEvent(), func(*http.Request) {})
	if _, ours := newEventSink(client).(eventSink); ours {
		t.Error("protobuf is asked for")
	}
}

// A client may have the API below a path of its own, as of a cluster behind a proxy.
func TestEventSinkOfAnotherPath(t *testing.T) {
	var path string
	config := &rest.Config{Host: "http://api.example", APIPath: "/clusters/a/api", QPS: -1, ContentConfig: inProtobuf}
	config.GroupVersion, config.NegotiatedSerializer = &corev1.SchemeGroupVersion, scheme.Codecs
	core, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		path = request.URL.Path
		return nil, io.EOF
	})})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = newEventSink(kubernetes.New(core)).Create(anEvent())
	if path != "/clusters/a/api/v1/namespaces/default/events" {
		t.Errorf("an event is written to %s", path)
	}
}

// The recorder counts on with what the sink has returned.
func TestEventThatOccursAgainIsCounted(t *testing.T) {
	requests := make(chan string, 1)
	writer := newEventWriter(-1, 1)
	defer writer.start(answering(t, inProtobuf, http.StatusCreated, anEvent(), func(request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		requests <- request.Method + " " + request.URL.Path + " " + string(body)
	}))()
	recorder := &lateRecorder{writer: writer, node: "vk"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
	recorder.Event(pod, corev1.EventTypeNormal, "Fine", "message")
	if first := <-requests; !strings.HasPrefix(first, "POST /api/v1/namespaces/default/events ") {
		t.Errorf("the first time: %s", first)
	}
	recorder.Event(pod, corev1.EventTypeNormal, "Fine", "message")
	if again := <-requests; !strings.HasPrefix(again, "PATCH /api/v1/namespaces/default/events/web.") || !strings.Contains(again, `"count":2`) {
		t.Errorf("the second time: %s", again)
	}
}
