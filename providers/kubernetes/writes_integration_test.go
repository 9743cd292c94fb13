//go:build integration

package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// writeVerbs are the verbs with which each kind of remote object is written: kinds that
// may belong to somebody else are created, never applied over, and the rest is applied.
var writeVerbs = map[string][]string{
	"configmaps": {"patch"}, "secrets": {"patch"}, "services": {"patch"}, "endpointslices": {"patch"},
	"pods": {"create", "patch"}, "namespaces": {"create"}, "persistentvolumeclaims": {"create", "patch"},
}

// wantWrites checks that all writes have the field manager and the verbs of their kind.
func (a audit) wantWrites(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, request := range a.requests(t) {
		of := request.ObjectRef
		if !slices.Contains([]string{"create", "update", "patch"}, request.Verb) ||
			slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, of.Subresource) || strings.HasSuffix(of.Resource, "reviews") {
			continue
		}
		seen[of.Resource] = true
		if !slices.Contains(writeVerbs[of.Resource], request.Verb) {
			t.Errorf("%s %s: want one of %q", request.Verb, request.RequestURI, writeVerbs[of.Resource])
		}
		if uri, err := url.Parse(request.RequestURI); err != nil || uri.Query().Get("fieldManager") != translate.FieldManager {
			t.Errorf("%s %s has not the field manager %s", request.Verb, request.RequestURI, translate.FieldManager)
		}
	}
	for kind := range writeVerbs {
		if !seen[kind] {
			t.Errorf("nothing of kind %s was written", kind)
		}
	}
}

// changesOf counts the writes of a remote pod.
func (a audit) changesOf(t *testing.T, pod *corev1.Pod) (count int) {
	t.Helper()
	for _, request := range a.requests(t) {
		of := request.ObjectRef
		if of.Resource == "pods" && of.Namespace == pod.Namespace && of.Name == pod.Name &&
			(request.Verb == "update" || request.Verb == "patch") && request.ResponseStatus.Code == http.StatusOK {
			count++
		}
	}
	return count
}

// testMetadataRemoved removes labels and annotations of a pod at home while no node runs:
// they are removed in the remote cluster, and what others have added there stays. changesOf
// counts the writes of a remote pod.
func (w *world) testMetadataRemoved(t *testing.T, restart func(meanwhile func()), changesOf func(*testing.T, *corev1.Pod) int) {
	pod := w.waitRunning(t, w.pod(t, "labelled", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"color": "red", "app": "labelled"}
		pod.Annotations = map[string]string{"note": "old"}
	}))
	far, err := w.remotePod(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	injected := []byte(`{"metadata": {"labels": {"injected": "yes"}, "annotations": {"injected": "yes"}}}`)
	if _, err := w.remote.client.CoreV1().Pods(far.Namespace).Patch(t.Context(), far.Name, types.MergePatchType, injected, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	before := changesOf(t, far)
	restart(func() {
		w.kubectl(t, "label", "pod", "labelled", "color-")
		w.kubectl(t, "annotate", "pod", "labelled", "note-")
	})
	eventually(t, "the remote pod has lost them", func(ctx context.Context) error {
		now, err := w.remotePod(ctx, pod.UID)
		if err != nil {
			return err
		}
		if now.Labels["color"]+now.Annotations["note"] != "" {
			return fmt.Errorf("it has labels %v and annotations %v", now.Labels, now.Annotations)
		}
		if now.Labels["injected"]+now.Annotations["injected"]+now.Labels["app"] != "yesyeslabelled" || now.UID != far.UID {
			t.Errorf("it has labels %v and annotations %v", now.Labels, now.Annotations)
		}
		return nil
	})
	// The audit log has a write a moment after its effect can be seen.
	writes := func(want int) int {
		t.Helper()
		eventually(t, "the write is counted", func(context.Context) error {
			if n := changesOf(t, far) - before; n < want {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		return changesOf(t, far) - before
	}
	if n := writes(1); n != 1 {
		t.Errorf("that took %d writes, want one", n)
	}
	restart(func() {})
	w.kubectl(t, "label", "pod", "labelled", "last=yes")
	eventually(t, "the next change is there", func(ctx context.Context) error {
		now, err := w.remotePod(ctx, pod.UID)
		if err == nil && now.Labels["last"] != "yes" {
			err = fmt.Errorf("it has %v", now.Labels)
		}
		return err
	})
	if n := writes(2); n != 2 {
		t.Errorf("there were %d writes, want two: a restart alone takes none", n)
	}
	w.delete(t, pod)
}
