package kubernetes

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// silentFrom makes the watches of pods that begin while it is set send no events.
func silentFrom(remote *fake.Clientset, silent *atomic.Bool) {
	remote.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		if silent.Load() {
			return true, watch.NewRaceFreeFake(), nil
		}
		return false, nil, nil
	})
}

// If an open watch sends no events, behind a proxy or after a restore of the remote
// database, a pod that is gone does not stay Running.
func TestWatchThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var silent atomic.Bool
		silentFrom(remote, &silent)
		silent.Store(true)
		first, second, third := named("one"), named("two"), named("three")
		before := newRig(t, "", newRemote())
		for _, pod := range []*corev1.Pod{first, second} {
			far := before.create(pod)
			running(far)
			if err := remote.Tracker().Add(far); err != nil {
				t.Fatal(err)
			}
		}
		r := newRig(t, "", remote, first, second, third)
		if found := r.listed(t); len(found) != 2 {
			t.Fatalf("listed are %v", found)
		}
		r.remove(r.remotePod(first))
		other := before.create(third)
		running(other)
		if err := remote.Tracker().Add(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		if found := r.listed(t); len(found) != 2 || found["two"] != corev1.PodRunning || found["three"] != corev1.PodRunning {
			t.Errorf("listed are %v", found)
		}
		if _, err := r.GetPodByUID(t.Context(), first.Namespace, first.Name, first.UID); !errdefs.IsNotFound(err) {
			t.Errorf("asked for the pod that is no more: %v", err)
		}
	})
}

// A watch that sends events is not ended, regardless of how many there are.
func TestWatchThatIsBusyIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("one")
		r.change(r.create(pod), running)
		r.requests()
		for range 11 * 12 {
			r.change(r.remotePod(pod), func(pod *corev1.Pod) { pod.Status.Message = time.Now().String() })
			time.Sleep(5 * time.Second)
			for _, action := range r.remote.Actions() {
				if action.GetVerb() == "watch" {
					t.Fatal("the pods are watched again")
				}
			}
			r.remote.ClearActions()
		}
	})
}

// If a ready remote API server refuses to list and watch pods, the cache becomes
// outdated: the node is not ready, and no outdated pod is shown.
func TestPodsCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		lists := newRelists(remote)
		var refused atomic.Bool
		no := apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		fakeapi.React(&remote.Fake, "list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) { return refused.Load(), nil, no })
		remote.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return refused.Load(), nil, no })
		r := newRig(t, "unreachable: {keepReady: 10m}\n", remote)
		pod := named("one")
		r.change(r.create(pod), running)
		far := r.remotePod(pod)
		ready, err := kubernetes.NewForConfig(&rest.Config{Host: "http://remote", QPS: -1, Transport: &remoteServer{}})
		if err != nil {
			t.Fatal(err)
		}
		r.Provider.remote = ready // from here on only pings use it
		ping := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return r.Ping(ctx)
		}
		if err := ping(); err != nil {
			t.Fatal(err)
		}
		refused.Store(true)
		lists.expires.Store(true)
		r.change(far, func(pod *corev1.Pod) { pod.Status.Message = "changed" })
		time.Sleep(time.Minute)
		if err := ping(); err != nil {
			t.Errorf("after a minute: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := ping(); err == nil {
			t.Error("the node is well")
		}
		if _, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("listed with %v", err)
		}
		refused.Store(false)
		time.Sleep(time.Minute)
		if err := ping(); err != nil {
			t.Errorf("back: %v", err)
		}
	})
}
