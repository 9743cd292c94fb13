package kubernetes

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// The remote pods may be known before the home pods: no change of them is missed.
func TestPodsAtHomeAreKnownLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		quiet, evicted := named("quiet"), named("evicted")
		before.change(before.create(quiet), running)
		before.change(before.create(evicted), func(pod *corev1.Pod) {
			pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		})
		first := before.remotePod(evicted)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		var synced atomic.Bool
		r := newRigLate(t, remote, &synced)
		time.Sleep(2 * time.Second)
		r.setHomePod(quiet)
		r.setHomePod(evicted)
		synced.Store(true)
		time.Sleep(10 * time.Minute)
		if !r.reflector.IsRegistered(quiet.UID) {
			t.Error("what the pod needs is not kept up to date")
		}
		if far := r.remotePod(evicted); far == nil || far.UID == first.UID {
			t.Errorf("the evicted pod is %v", far)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if slices.ContainsFunc(r.notified, ended) {
			t.Error("the evicted pod is reported to have failed")
		}
	})
}

// Changes of a remote pod that were missed because its home pod became known late are
// handled then.
func TestPodAtHomeIsKnownLaterThanItsRemotePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		quiet, taken := named("quiet"), named("taken")
		before.change(before.create(quiet), running)
		before.change(before.create(taken), func(pod *corev1.Pod) { running(pod); pod.Spec.NodeName = "n" })
		before.change(before.remotePod(taken), deletedThere)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, "", remote)
		r.setHomePod(quiet)
		r.setHomePod(taken)
		time.Sleep(10 * time.Minute)
		if !r.reflector.IsRegistered(quiet.UID) {
			t.Error("what the pod needs is not kept up to date")
		}
		if s := r.last(); s.Phase != corev1.PodFailed {
			t.Errorf("the pod whose remote node does not answer is %+v", s)
		}
	})
}

// newRigLate returns a rig that knows the home pods once synced is set.
func newRigLate(t *testing.T, remote *fake.Clientset, synced *atomic.Bool) *rig {
	t.Helper()
	return newRigWith(t, newHome("home-uid"), "evicted: restart\n", remote, func(made *nodeutil.ProviderConfig) { made.PodsSynced = synced.Load })
}
