package podwatch

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// answered returns our client of pods, made of one of this configuration, whose requests are all answered the same.
func answered(t *testing.T, config rest.Config, contentType string, body []byte) *leanPods {
	t.Helper()
	config.Host = "http://api.example"
	header := http.Header{"Content-Type": {contentType}}
	if config.WarningHandler != nil {
		header.Set("Warning", `299 - "deprecated"`)
	}
	client, err := kubernetes.NewForConfigAndClient(&config, &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	known := cached(apiPod())
	pods, _ := newClient(client, func(string, string, string) *corev1.Pod { return known }).(*leanPods)
	return pods
}

// Who has configured JSON has a reason for it.
func TestContentTypes(t *testing.T) {
	for ours, contents := range map[bool][]rest.ContentConfig{
		true:  {{}, {ContentType: runtime.ContentTypeProtobuf}, {ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: accepted}},
		false: {{ContentType: runtime.ContentTypeJSON}, {AcceptContentTypes: runtime.ContentTypeJSON}},
	} {
		for _, content := range contents {
			if is := answered(t, rest.Config{ContentConfig: content}, runtime.ContentTypeJSON, nil) != nil; is != ours {
				t.Errorf("with %+v protobuf is spoken: %v", content, is)
			}
		}
	}
}

type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func TestWarningsGoToTheirHandler(t *testing.T) {
	var w warnings
	pods := answered(t, rest.Config{WarningHandler: &w}, runtime.ContentTypeProtobuf, encode(t, apiPod(newer))).Pods("default")
	if _, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if len(w) != 2 {
		t.Errorf("of two warnings came %q", w)
	}
}

// A path names one pod, or there is no request: without a name it would be that of all pods.
func TestNamesThatLeadElsewhere(t *testing.T) {
	pods := answered(t, rest.Config{}, runtime.ContentTypeProtobuf, encode(t, apiPod()))
	for _, path := range [][]string{{"default", ""}, {"", "web"}, {"default", "."}, {"default", ".."}, {"..", "web"}, {"default", "a/b"}, {"default", "a%2fb"}, {"default", "web", ".."}, {"default", "web", ""}} {
		if _, err := pods.Pods(path[0]).Patch(t.Context(), path[1], types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, path[2:]...); err == nil {
			t.Errorf("%q was patched", path)
		}
		if len(path) > 2 {
			continue
		}
		if err := pods.Pods(path[0]).Delete(t.Context(), path[1], metav1.DeleteOptions{}); err == nil {
			t.Errorf("%q was deleted", path)
		}
	}
}

// What only speaks JSON may leave out the kind that was asked for, as client-go does when it sends.
func TestAnswerWithoutKind(t *testing.T) {
	pods := answered(t, rest.Config{}, runtime.ContentTypeJSON, []byte(`{"metadata": {"name": "web"}}`)).Pods("default")
	pod, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
	if err != nil || pod.Name != "web" {
		t.Errorf("got %+v and the error %v", pod, err)
	}
}

// What a dry run answers comes to no event.
func TestDryRun(t *testing.T) {
	pods := answered(t, rest.Config{}, runtime.ContentTypeProtobuf, encode(t, apiPod(newer)))
	for options, remembered := range map[*metav1.PatchOptions]int{{DryRun: []string{metav1.DryRunAll}}: 0, {}: 1} {
		clear(pods.decoder.answers)
		if _, err := pods.Pods("default").Patch(t.Context(), "web", types.StrategicMergePatchType, []byte("{}"), *options); err != nil {
			t.Error(err)
		}
		if got := len(pods.decoder.answers); got != remembered {
			t.Errorf("with %+v %d answers are kept", options, got)
		}
	}
}
