package kubernetes

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// withoutMetadata creates a remote pod, to which others add metadata, stops the
// provider, and returns the home pod with metadata removed.
func withoutMetadata(t *testing.T, r *rig) *corev1.Pod {
	t.Helper()
	pod := named("one")
	pod.Labels["color"] = "red"
	pod.Annotations = map[string]string{"note": "old", "kept": "yes"}
	r.change(r.create(pod.DeepCopy()), func(far *corev1.Pod) {
		far.Labels["injected"], far.Annotations["injected"] = "yes", "yes"
	})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	delete(pod.Labels, "color")
	delete(pod.Annotations, "note")
	return pod
}

// writes returns the requests that change something.
func writes(requests []string) []string {
	return slices.DeleteFunc(slices.Clone(requests), func(request string) bool {
		return strings.HasPrefix(request, "get ") || strings.HasPrefix(request, "list ") || strings.HasPrefix(request, "watch ")
	})
}

// Metadata that home has removed while no provider ran is removed when the next one
// starts, with one request, and what others have added stays.
func TestMetadataRemovedWhileNoProviderRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pod := withoutMetadata(t, before)
		before.requests()
		after := newRig(t, "", remote, pod)
		if got := writes(after.beginning); !slices.Equal(got, []string{"patch pods"}) {
			t.Errorf("the provider began with %q", after.beginning)
		}
		far := after.remotePod(pod)
		labels, annotations := slices.Sorted(maps.Keys(far.Labels)), slices.Sorted(maps.Keys(far.Annotations))
		for what, c := range map[string]struct{ has, wanted, gone []string }{
			"labels":      {labels, []string{"app", "injected"}, []string{"color"}},
			"annotations": {annotations, []string{"kept", "injected"}, []string{"note"}},
		} {
			for _, name := range c.wanted {
				if !slices.Contains(c.has, name) {
					t.Errorf("of the %s %s is not there, but %q", what, name, c.has)
				}
			}
			for _, name := range c.gone {
				if slices.Contains(c.has, name) {
					t.Errorf("of the %s %s is still there: %q", what, name, c.has)
				}
			}
		}
		after.requests()
		after.change(far, running)
		after.wantRequests("a change there", "update pods") // which is that change
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
		if got := writes(newRig(t, "", remote, pod).beginning); len(got) > 0 {
			t.Errorf("the next provider, for which nothing differs, began with %q", got)
		}
	})
}

// A label that the configuration excludes by now is removed, too.
func TestMetadataRemovedByTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pod := named("one")
		before.create(pod)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		after := newRig(t, "labels: {exclude: [app]}\n", remote, pod)
		if far := after.remotePod(pod); far.Labels["app"] != "" {
			t.Errorf("it has labels %v", far.Labels)
		}
	})
}

// A change of the spec is applied by the pod controller's update, with all labels: the
// annotation with what was last applied must not run ahead of it.
func TestMetadataRemovedWithAChangeOfTheSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pod := withoutMetadata(t, before)
		pod.Generation = 2
		pod.Spec.Containers[0].Image = "app:2"
		before.requests()
		after := newRig(t, "", remote, pod)
		if got := writes(after.beginning); len(got) > 0 {
			t.Errorf("the provider began with %q", got)
		}
		if err := after.UpdatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if far := after.remotePod(pod); far.Labels["color"] != "" || far.Spec.Containers[0].Image != "app:2" {
			t.Errorf("it has labels %v and image %s", far.Labels, far.Spec.Containers[0].Image)
		}
	})
}

// If the update is refused, or somebody else writes meanwhile, it is retried.
func TestMetadataCannotBeRemoved(t *testing.T) {
	for what, failure := range map[string]error{
		"refused":  errors.New("refused"),
		"conflict": apierrors.NewConflict(corev1.Resource("pods"), "one", errors.New("changed")),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				pod := withoutMetadata(t, newRig(t, "", remote))
				var failing atomic.Bool
				failing.Store(true)
				fakeapi.React(&remote.Fake, "patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return failing.Load(), nil, failure
				})
				r := newRig(t, "", remote, pod)
				if recorded := len(r.events.Events) > 0; recorded != (what == "refused") {
					t.Errorf("there are events: %v", recorded)
				}
				failing.Store(false)
				if what == "conflict" {
					r.change(r.remotePod(pod), running) // the change because of which it failed is observed
				}
				time.Sleep(time.Minute)
				if far := r.remotePod(pod); far.Labels["color"] != "" {
					t.Errorf("it has labels %v", far.Labels)
				}
			})
		})
	}
}
