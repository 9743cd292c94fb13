package podlifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// halfNotFound is what a provider of several parts returns if one of them has no
// such pod and another has failed.
func halfNotFound() error {
	return errors.Join(errdefs.NotFound("no such group"), errors.New("delete the network: timed out"))
}

// Invariant 4: a failure beside a NotFound is a failure. The pod stays in the API
// until its end is known.
func TestDeleteThatFailsInPart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.provider.script(func(s *script) {
			s.onDelete = func(context.Context, *corev1.Pod) error { return halfNotFound() }
		})
		r.api.DeletePod("web")
		pass(10 * time.Second)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API although a part of it could not be deleted")
		}
		r.provider.script(func(s *script) { s.onDelete = nil })
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 2: nor is a pod absent that the provider could not look for everywhere.
func TestGetThatFailsInPart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = polled{r.provider}
		pod := r.api.AddPod(aPod("web"))
		r.provider.hold(pod, corev1.PodRunning)
		r.provider.script(func(s *script) {
			s.list = func() []*corev1.Pod { return nil }
			s.onGet = func(string) error { return halfNotFound() }
			s.onStatus = s.onGet
		})
		r.start()
		pass(10 * time.Minute)
		wantList(t, "creates", r.provider.took("create"))
		want(t, "phase", r.phase("web"), corev1.PodPending)
		r.provider.script(func(s *script) { s.onGet = nil })
		pass(2 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		pass(10 * time.Minute) // in which its status cannot be read
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "creates", r.provider.took("create"))
	})
}

// Invariant 3: a read of the API that failed in part confirms no orphan.
func TestOrphanThatCannotBeConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = polled{r.provider}
		r.api.Fail("get pods", errors.Join(apierrors.NewNotFound(fakeapi.Pods.GroupResource(), "gone"), errors.New("connection reset")))
		r.provider.hold(aPod("gone", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Now() }), corev1.PodRunning)
		r.start()
		pass(10 * time.Minute)
		wantList(t, "deletes", r.provider.took("delete"))
	})
}
