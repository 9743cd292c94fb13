package nodeutil

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func aLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "vk", UID: "u1", ResourceVersion: "7", Annotations: map[string]string{"held": "here"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("vk"), LeaseDurationSeconds: ptr.To[int32](40)},
	}
}

func TestNodeLeases(t *testing.T) {
	var method, path, sent string
	see := func(request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		method, path, sent = request.Method, request.URL.Path, string(body)
	}
	inAPI := aLease()
	inAPI.ResourceVersion = "8"
	inAPI.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "virtual-kubelet", FieldsV1: metav1.NewFieldsV1("{}")}}
	reduced := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: inAPI.ObjectMeta}
	for name, answer := range map[string]runtime.Object{"reduced": reduced, "whole": inAPI} {
		for encoding, client := range map[string]kubernetes.Interface{
			"protobuf": answering(t, inProtobuf, http.StatusOK, answer, see),
			"JSON":     answeringInJSON(t, answer),
		} {
			lease := aLease()
			got, err := newNodeLeases(client).Update(t.Context(), lease, metav1.UpdateOptions{})
			if err != nil || got.ResourceVersion != "8" || got.Annotations["held"] != "here" || lease.ResourceVersion != "7" {
				t.Errorf("to a %s answer in %s: %v and the error %v", name, encoding, got, err)
			}
		}
	}
	if method != http.MethodPut || path != "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/vk" || !strings.Contains(sent, "held") {
		t.Errorf("%s %s was asked for, with %q", method, path, sent)
	}
	refused := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: http.StatusConflict, Message: "it has changed"}
	if _, err := newNodeLeases(answering(t, inProtobuf, http.StatusConflict, refused, see)).Update(t.Context(), aLease(), metav1.UpdateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "it has changed") {
		t.Errorf("a lease that another has written gets the error %v", err)
	}
	for encoding, client := range map[string]kubernetes.Interface{"protobuf": answering(t, inProtobuf, http.StatusOK, refused, see), "JSON": answeringInJSON(t, refused)} {
		if got, err := newNodeLeases(client).Update(t.Context(), aLease(), metav1.UpdateOptions{}); err == nil {
			t.Errorf("what is no lease, in %s, was taken for %v", encoding, got)
		}
	}
	path = ""
	for _, name := range []string{"", "..", "a/b"} {
		lease := aLease()
		lease.Name = name
		if _, err := newNodeLeases(answering(t, inProtobuf, http.StatusOK, inAPI, see)).Update(t.Context(), lease, metav1.UpdateOptions{}); err == nil || path != "" {
			t.Errorf("lease %q: %v, with a request for %q", name, err, path)
		}
	}
}

// answeringInJSON returns a client that asks for protobuf, and is answered in JSON.
func answeringInJSON(t *testing.T, object runtime.Object) kubernetes.Interface {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api.example", QPS: -1, ContentConfig: inProtobuf}, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
