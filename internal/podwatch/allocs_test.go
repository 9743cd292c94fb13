//go:build !race

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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

// What decoding a pod allocates, by what is known of it.
func TestAllocations(t *testing.T) {
	ended := encode(t, apiPod(newer, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }))
	deleted := encode(t, apiPod(newer, func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = new(int64(30)) }))
	none, known := knowing(nil), knowing(cached(apiPod()))
	pods, plain := transported(t, ended)
	allocs.Compare(t,
		allocs.Operation{Name: "new-pod", Do: func() { none.event(ended) }},
		allocs.Operation{Name: "new-status", Do: func() { known.event(ended) }},
		allocs.Operation{Name: "new-metadata", Do: func() { known.event(deleted) }},
		allocs.Operation{Name: "answer-and-event", Do: func() { known.answer(ended); known.event(ended) }},
		allocs.Operation{Name: "patch", Do: func() { patch(t, pods) }},
		allocs.Operation{Name: "patch-of-client-go", Do: func() { patch(t, plain) }},
		allocs.Operation{Name: "delete", Do: func() { remove(t, pods) }},
		allocs.Operation{Name: "delete-of-client-go", Do: func() { remove(t, plain) }},
	)
}

func patch(t *testing.T, pods corev1client.PodInterface) {
	_, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, pods corev1client.PodInterface) {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions("uid")
	if err := pods.Delete(t.Context(), "web", *options); err != nil {
		t.Fatal(err)
	}
}

// transported returns clients, ours and client-go's own, that are answered with a pod, without a network.
func transported(t *testing.T, pod []byte) (ours, plain corev1client.PodInterface) {
	t.Helper()
	header := http.Header{"Content-Type": {runtime.ContentTypeProtobuf}}
	config := &rest.Config{Host: "http://api.example", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(pod))}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	known := cached(apiPod())
	return newClient(client, func(string, string, string) *corev1.Pod { return known }).Pods("default"), client.CoreV1().Pods("default")
}
