package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
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
		r.startWith(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return halfNotFound() }
		})
		r.api.DeletePod("web")
		pass(10 * time.Second)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API although a part of it could not be deleted")
		}
		r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 4: nor is one in which something else than the pod was not there, such as what
// the provider needs to reach it.
func TestDeleteThatLacksWhatItNeeds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error {
				return errdefs.AsUnavailable(fmt.Errorf("credentials: %w", errdefs.NotFound("no such Secret")))
			}
		})
		r.api.DeletePod("web")
		pass(10 * time.Second)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API although its provider could not delete it")
		}
		r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 2: nor is a pod absent that the provider could not look for everywhere.
func TestGetThatFailsInPart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		pod := r.api.AddPod(aPod("web"))
		r.provider.Hold(pod, corev1.PodRunning)
		r.provider.Script(func(s *nodetest.Script) {
			s.List = func() []*corev1.Pod { return nil }
			s.OnGet = func(string) error { return halfNotFound() }
			s.OnStatus = s.OnGet
		})
		r.start()
		pass(10 * time.Minute)
		wantList(t, "creates", r.provider.TakeCalls("create"))
		want(t, "phase", r.phase("web"), corev1.PodPending)
		r.provider.Script(func(s *nodetest.Script) { s.OnGet = nil })
		pass(2 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		pass(10 * time.Minute) // in which its status cannot be read
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "creates", r.provider.TakeCalls("create"))
	})
}

// Invariant 3: a read of the API that failed in part confirms no orphan.
func TestOrphanThatCannotBeConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.api.Fail("get pods", errors.Join(apierrors.NewNotFound(fakeapi.Pods.GroupResource(), "gone"), errors.New("connection reset")))
		r.provider.Hold(aPod("gone", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Now() }), corev1.PodRunning)
		r.start()
		pass(10 * time.Minute)
		wantList(t, "deletes", r.provider.TakeCalls("delete"))
	})
}
