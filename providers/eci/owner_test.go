package eci

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

// rigOf returns a rig of one of several clusters on an API.
func rigOf(t *testing.T, api *ecitest.Server, cluster string) *rig {
	t.Helper()
	r := newRigOn(t, api)
	r.home = grouptest.NewCluster(types.UID(cluster))
	r.Provider = r.newProvider(t, r.cfg)
	return r
}

// A second cluster with a copy of the configuration neither sees nor deletes the first
// one's groups, says why, and starts once the names are free.
func TestTwoClustersWithOneConfiguration(t *testing.T) {
	api := ecitest.New(0)
	t.Cleanup(api.Close)
	first, second := rigOf(t, api, "first"), rigOf(t, api, "second")
	pod := first.create(t, newPod("a"))

	_, listed := second.GetPods(t.Context())
	for what, err := range map[string]error{
		"GetPods":   listed,
		"Ping":      second.Ping(t.Context()),
		"CreatePod": second.CreatePod(t.Context(), newPod("b")),
		"DeletePod": second.DeletePod(t.Context(), pod),
	} {
		if !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), `cluster "home"`) || !strings.Contains(err.Error(), "second") {
			t.Errorf("%s gives %v", what, err)
		}
	}
	if pods, err := first.GetPods(t.Context()); err != nil || len(pods) != 1 {
		t.Errorf("the first cluster has %d pods: %v", len(pods), err)
	}
	if err := first.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := second.Ping(t.Context()); err != nil {
		t.Errorf("the second cluster has the names for itself: %v", err)
	}
	second.create(t, newPod("b"))

	// The first cluster continues beside it, as it does after a restart with groups of
	// its own.
	first.create(t, newPod("c"))
	first.Provider = first.newProvider(t, first.cfg)
	for what, r := range map[string]*rig{"b": second, "c": first} {
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].Name != what {
			t.Errorf("the cluster of %s has %d pods: %v", what, len(pods), err)
		}
	}
	if err := first.DeletePod(t.Context(), newPod("b")); !errdefs.IsNotFound(err) {
		t.Errorf("the deletion of the other one's pod gives %v", err)
	}
}

// A cluster whose UID cannot be read deletes and creates nothing, and continues when it
// can be read.
func TestAClusterThatCannotBeRead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		pod := r.create(t, newPod("a"))
		synctest.Wait() // for the annotations, since reactors must not be added meanwhile
		forbidden := true
		fakeapi.React(&r.home.Client().(*fake.Clientset).Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return forbidden, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), metav1.NamespaceSystem, nil)
		})
		r.Provider = r.newProvider(t, r.cfg)
		if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
			t.Errorf("the pod is asked for: %v", err)
		}
		if err := r.DeletePod(t.Context(), pod); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
			t.Errorf("the pod is deleted: %v", err)
		}
		if err := r.CreatePod(t.Context(), newPod("b")); !errdefs.IsUnavailable(err) {
			t.Errorf("a pod is created: %v", err)
		}
		if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "print-rbac") {
			t.Errorf("the node says %v", err)
		}
		if calls := r.api.Calls("DeleteContainerGroup"); calls != 0 {
			t.Errorf("%d groups were deleted", calls)
		}
		forbidden = false
		time.Sleep(time.Minute)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("after that there are %d pods: %v", len(pods), err)
		}
	})
}

// A group of an earlier version, without a cluster UID, belongs to the cluster that has
// its pod, and is no orphan in any other.
func TestGroupsOfAnEarlierVersion(t *testing.T) {
	api := ecitest.New(0)
	t.Cleanup(api.Close)
	r, other := rigOf(t, api, "here"), rigOf(t, api, "other")
	kept, gone := r.create(t, newPod("kept")), r.create(t, newPod("gone"))
	if err := api.Untag(podgroup.TagClusterUID); err != nil {
		t.Fatal(err)
	}
	r.home.RemovePod(gone)
	r.Provider = r.newProvider(t, r.cfg)

	if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].UID != kept.UID {
		t.Errorf("there are %d pods: %v", len(pods), err)
	}
	if pods, err := other.GetPods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("the other cluster has %d pods: %v", len(pods), err)
	}
	// A caller that names the UID knows the pod.
	for _, pod := range []*corev1.Pod{kept, gone} {
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Errorf("%s: %v", pod.Name, err)
		}
	}
	if _, err := r.GetPodByUID(t.Context(), "default", "kept", kept.UID); !errdefs.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
}
