package kubernetes

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// A patch has only what has changed: a remote API server may have fields that this
// client does not know. It is guarded by the UID and version that were read.
func TestOnlyWhatHasChangedIsSent(t *testing.T) {
	for _, c := range []struct {
		what        string
		change      func(*corev1.Pod)
		subresource string
		sent        []string // of the spec, or nothing of it
	}{
		{"a label", func(pod *corev1.Pod) { pod.Labels["color"] = "red" }, "", nil},
		{"an image", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "app:2" }, "", []string{"$setElementOrder/containers", "containers"}},
		{"resources", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}, "resize", []string{"$setElementOrder/containers", "containers"}},
		{"an ephemeral container", func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}}}
		}, "ephemeralcontainers", []string{"ephemeralContainers"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "", newRemote())
				pod := named("one")
				r.change(r.create(pod), func(far *corev1.Pod) { far.ResourceVersion = "7" })
				r.remote.ClearActions()
				c.change(pod)
				if err := r.UpdatePod(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				var sent struct {
					Metadata metav1.ObjectMeta          `json:"metadata"`
					Spec     map[string]json.RawMessage `json:"spec"`
				}
				for _, action := range r.remote.Actions() {
					if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetResource().Resource == "pods" && patch.GetSubresource() == c.subresource {
						if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
							t.Fatal(err)
						}
						break
					}
				}
				far := r.remotePod(pod)
				if sent.Metadata.UID != far.UID || sent.Metadata.ResourceVersion != far.ResourceVersion || far.ResourceVersion == "" {
					t.Errorf("it was of %q, version %q; want %q, version %q", sent.Metadata.UID, sent.Metadata.ResourceVersion, far.UID, far.ResourceVersion)
				}
				if got := slices.Sorted(maps.Keys(sent.Spec)); !slices.Equal(got, c.sent) {
					t.Errorf("of the spec %q were sent, want %q", got, c.sent)
				}
			})
		})
	}
}

// A part of an update that is refused keeps no other back. It is reported, and sent again
// by the next update.
func TestRefusedPartOfAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("one")
		r.create(pod)
		refused := map[string]error{
			"ephemeralcontainers": apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("no debugging")),
			"resize":              apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "one", nil),
		}
		fakeapi.React(&r.remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err := refused[action.GetSubresource()]
			return err != nil, nil, err
		})
		pod.Generation++
		pod.Labels["color"], pod.Spec.Containers[0].Image = "red", "app:2"
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug")}
		r.requests()
		if err := r.UpdatePod(t.Context(), pod); !errors.Is(err, refused["ephemeralcontainers"]) || !errors.Is(err, refused["resize"]) {
			t.Errorf("the update says %v", err)
		}
		if far := r.remotePod(pod); far.Labels["color"] != "red" || far.Spec.Containers[0].Image != "app:2" {
			t.Errorf("the remote pod has labels %v, image %s", far.Labels, far.Spec.Containers[0].Image)
		}
		count := func() (tries int) {
			for _, request := range r.requests() {
				if request == "patch pods/ephemeralcontainers" || request == "patch pods/resize" {
					tries++
				}
			}
			return tries
		}
		if tries := count(); tries != 2 {
			t.Errorf("the two parts were sent %d times", tries)
		}
		clear(refused)
		if err := r.UpdatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if tries := count(); tries != 2 {
			t.Errorf("the two parts were sent again %d times", tries)
		}
		far := r.remotePod(pod)
		if cpu := far.Spec.Containers[0].Resources.Requests.Cpu(); len(far.Spec.EphemeralContainers) != 1 || cpu.Value() != 1 {
			t.Errorf("the remote pod has %+v, and requests %v", far.Spec.EphemeralContainers, cpu)
		}
		if err := r.UpdatePod(t.Context(), pod); err != nil || count() != 0 {
			t.Errorf("an update that changes nothing: %v", err)
		}
	})
}

// A remote cluster that has no pods/resize yet gets the other parts of an update all the
// same, and the resources once it has it.
func TestUpdateWithoutAResizeSubresource(t *testing.T) {
	for what, notFound := range map[string]error{
		"an API server's answer": apierrors.NewNotFound(corev1.Resource("pods"), "one"),
		"a page":                 apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", corev1.Resource("pods"), "one", "404 page not found", 0, true),
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "", newRemote())
			pod := named("one")
			r.create(pod)
			var upgraded atomic.Bool
			fakeapi.React(&r.remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return !upgraded.Load() && action.GetSubresource() == "resize", nil, notFound
			})
			pod.Generation++
			pod.Labels["color"], pod.Spec.Containers[0].Image = "red", "app:2"
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug")}
			if err := r.UpdatePod(t.Context(), pod); !errors.Is(err, errNoSubresource) || errdefs.IsNotFound(err) || errdefs.IsPermanent(err) {
				t.Errorf("%s: the update says %v", what, err)
			}
			if far := r.remotePod(pod); far.Labels["color"] != "red" || far.Spec.Containers[0].Image != "app:2" || len(far.Spec.EphemeralContainers) != 1 {
				t.Errorf("%s: the remote pod has labels %v, %+v", what, far.Labels, far.Spec)
			}
			upgraded.Store(true)
			if err := r.UpdatePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if cpu := r.remotePod(pod).Spec.Containers[0].Resources.Requests.Cpu(); cpu.Value() != 1 {
				t.Errorf("%s: after the upgrade the remote pod requests %v", what, cpu)
			}
		})
	}
}
