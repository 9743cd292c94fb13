package kubernetes

import (
	"strings"
	"sync/atomic"
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
)

// newHomeWithNode returns a home cluster whose node is registered.
func newHomeWithNode(pods ...runtime.Object) *fake.Clientset {
	return newHome("home-uid", append(pods, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}})...)
}

// annotated returns the UID of the remote cluster that is on the node.
func annotated(t *testing.T, home *fake.Clientset) string {
	t.Helper()
	node, err := home.CoreV1().Nodes().Get(t.Context(), "far", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Annotations[AnnotationRemoteUID]
}

func wantOtherCluster(t *testing.T, what string, err error) {
	t.Helper()
	if !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, text := range []string{"remote-uid", "other-uid", "kubectl annotate node far --overwrite " + AnnotationRemoteUID + "=other-uid"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s says %q, without %s", what, err, text)
		}
	}
}

// A cluster that takes the place of the remote one while the node runs has none of the
// pods. They are not made again in it, since they may run on in the other.
func TestAnotherClusterTakesThePlaceOfTheRemoteOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		lists := newRelists(remote)
		var other atomic.Bool
		fakeapi.React(&remote.Fake, "get", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if !other.Load() {
				return false, nil, nil
			}
			if resource := action.GetResource(); resource.Resource != "namespaces" {
				return true, nil, apierrors.NewNotFound(resource.GroupResource(), "x")
			}
			return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "other-uid"}}, nil
		})
		r := newRigAt(t, newHomeWithNode(), "evicted: restart\n", remote)
		pods, remotes := threeRunning(r)
		other.Store(true)
		lists.answer(&corev1.PodList{})
		lists.relist(r, remotes[0])
		time.Sleep(time.Hour)
		r.harmless(t)
		wantOtherCluster(t, "Ping", r.Ping(t.Context()))
		wantOtherCluster(t, "CreatePod", r.CreatePod(t.Context(), named("four")))
		wantOtherCluster(t, "DeletePod", r.DeletePod(t.Context(), pods[0]))
		if r.mayBegin() {
			t.Error("the provider may create and delete objects")
		}
		if err := r.reflector.RegisterPod(t.Context(), named("four"), &corev1.Pod{}); err == nil {
			t.Error("copies are written")
		}
		r.reflector.UnregisterPod(named("four").UID)

		other.Store(false)
		lists.answer(nil)
		time.Sleep(time.Minute)
		if err := r.checkRemoteCluster(t.Context()); err != nil {
			t.Errorf("the remote cluster is back: %v", err)
		}
		if phases := r.listed(t); len(phases) != 3 || phases["two"] != corev1.PodRunning {
			t.Errorf("after that there are %v", phases)
		}
		r.harmless(t)
	})
}

// The node remembers its remote cluster: a process that starts with another one refuses
// it, until the operator accepts it.
func TestAnotherRemoteClusterAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := named("web")
		home := newHomeWithNode(onNode(pod))
		before := newRigAt(t, home, "evicted: restart\n", newRemote(), pod)
		before.create(pod)
		before.recordRemoteCluster(t.Context()) // as a ping does
		if got := annotated(t, home); got != "remote-uid" {
			t.Fatalf("the node has the remote cluster %q", got)
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}

		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		after := newRigAt(t, home, "evicted: restart\n", newRemoteAs("other-uid"), pod)
		time.Sleep(time.Hour)
		wantOtherCluster(t, "Ping", after.Ping(t.Context()))
		_, err := after.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
		wantOtherCluster(t, "GetPod", err)
		if left := present(t, after.remote); len(left) > 0 {
			t.Errorf("the other cluster has %q", left)
		}

		patch := []byte(`{"metadata": {"annotations": {"` + AnnotationRemoteUID + `": "other-uid"}}}`)
		if _, err := home.CoreV1().Nodes().Patch(t.Context(), "far", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := after.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil {
			t.Errorf("the other cluster is accepted: %v", err)
		}
		time.Sleep(time.Minute)
		if after.remotePod(pod) == nil {
			t.Error("the pod is not made again in the cluster that was accepted")
		}
	})
}

// Without the right to read the UID a node works, and records nothing.
func TestRemoteClusterWhoseUIDMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, home := newRemote(), newHomeWithNode()
		fakeapi.React(&remote.Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), metav1.NamespaceSystem, nil)
		})
		r := newRigAt(t, home, "", remote)
		r.create(named("web"))
		r.recordRemoteCluster(t.Context())
		if got := annotated(t, home); got != "" {
			t.Errorf("the node has the remote cluster %q", got)
		}
	})
}

// keepReady is for outages: another cluster makes the node not ready at once.
func TestAnotherRemoteClusterIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server := newPinged(t, "unreachable: {keepReady: 1h}\n")
		if err := pingFor(r, time.Minute); err != nil {
			t.Fatal(err)
		}
		server.set("another")
		wantOtherCluster(t, "Ping", pingFor(r, 0))
		server.set("")
		if err := pingFor(r, 0); err != nil {
			t.Errorf("the remote cluster is back: %v", err)
		}
	})
}
