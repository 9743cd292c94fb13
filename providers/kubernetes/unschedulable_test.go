package kubernetes

import (
	"errors"
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
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const failAfterTenMinutes = "unschedulable: {after: 10m, then: fail}\n"

// unscheduled sets the condition with which the remote scheduler reports that no node
// fits.
func unscheduled(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}
}

func isDisrupted(status corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == translate.ReasonUnschedulable
	})
}

// A pod for which the remote cluster has no node for a time fails, regardless of the
// policy for evicted ones, and leaves nothing there.
func TestUnschedulablePodFails(t *testing.T) {
	for _, evicted := range []string{"", "evicted: restart\n"} {
		synctest.Test(t, func(t *testing.T) {
			remote := newRemote()
			r := newRig(t, failAfterTenMinutes+evicted, remote)
			pod := named("big")
			r.change(r.create(pod), unscheduled)
			time.Sleep(9 * time.Minute)
			if status := r.last(); status.Phase != corev1.PodPending || r.remotePod(pod) == nil {
				t.Errorf("before the time is up it is %s", status.Phase)
			}
			time.Sleep(2 * time.Minute)
			status := r.last()
			if status.Phase != corev1.PodFailed || status.Reason != translate.ReasonUnschedulable || !strings.Contains(status.Message, "0/3 nodes") || !isDisrupted(status) {
				t.Errorf("%s%s %s: %s, %+v", evicted, status.Phase, status.Reason, status.Message, status.Conditions)
			}
			time.Sleep(time.Hour)
			if found := r.remotePod(pod); found != nil {
				t.Error("it was created again")
			}
			if left := present(t, remote); len(left) > 0 {
				t.Errorf("there is %q", left)
			}
		})
	}
}

// A pod that is scheduled in time, held back on purpose, or deleted at home does not
// fail, and without the policy each pod waits.
func TestPodsThatDoNotFailUnscheduled(t *testing.T) {
	for what, c := range map[string]struct {
		config string
		change func(*corev1.Pod)
	}{
		"scheduled": {failAfterTenMinutes, func(pod *corev1.Pod) { pod.Spec.NodeName = "a" }},
		"gated":     {failAfterTenMinutes, func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }},
		"kept":      {"", unscheduled},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.config, newRemote())
				pod := named("big")
				r.change(r.create(pod), unscheduled)
				time.Sleep(9 * time.Minute)
				r.change(r.remotePod(pod), c.change)
				time.Sleep(time.Hour)
				if status := r.last(); status.Phase != corev1.PodPending || r.remotePod(pod) == nil {
					t.Errorf("it is %s %s", status.Phase, status.Message)
				}
			})
		})
	}
}

// A pod that gets a node as its time is up does not fail: the deletion is refused.
func TestPodScheduledAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var created *corev1.Pod
		fakeapi.React(&remote.Fake, "delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			options := action.(clienttesting.DeleteActionImpl).DeleteOptions
			if options.Preconditions == nil || options.Preconditions.ResourceVersion == nil {
				t.Errorf("it is deleted regardless of its version: %+v", options)
			}
			next := created.DeepCopy()
			next.Spec.NodeName, next.Status.Phase = "a", corev1.PodRunning
			if err := remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), next, next.Namespace); err != nil {
				t.Error(err)
			}
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), next.Name, errors.New("it has changed"))
		})
		r := newRig(t, failAfterTenMinutes, remote)
		created = r.create(named("big"))
		r.change(created, unscheduled)
		time.Sleep(time.Hour)
		if status := r.last(); status.Phase != corev1.PodRunning {
			t.Errorf("it is %s %s", status.Phase, status.Message)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, reported := range r.notified {
			if reported.Status.Phase == corev1.PodFailed {
				t.Error("it had failed")
			}
		}
	})
}

// An outage when the time is up, and a deletion whose response is lost, only delay it.
func TestUnschedulablePodFailsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var away atomic.Bool
		lost := false // read and written by reactors alone
		fakeapi.React(&remote.Fake, "*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetVerb() == "get" && away.Load() {
				return true, nil, errors.New("connection refused")
			}
			if remove, ok := action.(clienttesting.DeleteActionImpl); ok && !lost {
				lost = true
				_ = remote.Tracker().Delete(remove.GetResource(), remove.GetNamespace(), remove.Name)
				return true, nil, errors.New("connection reset")
			}
			return false, nil, nil
		})
		r := newRig(t, failAfterTenMinutes, remote)
		pod := named("big")
		r.change(r.create(pod), unscheduled)
		away.Store(true)
		time.Sleep(30 * time.Minute)
		if status := r.last(); status.Phase != corev1.PodPending {
			t.Errorf("during the outage it is %s", status.Phase)
		}
		away.Store(false)
		time.Sleep(10 * time.Minute)
		if status := r.last(); status.Phase != corev1.PodFailed || status.Reason != translate.ReasonUnschedulable {
			t.Errorf("after it it is %s %s", status.Phase, status.Reason)
		}
	})
}

// A pod that has failed is known to have done so until the end of its remote pod was handled, also if
// that has left the cache before.
func TestUnscheduledPodIsKnownUntilItsEndIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "unschedulable: {after: 1m, then: fail}\n", newRemote())
		far := r.create(named("one"))
		r.setUnscheduledFailure(far, "no node")
		r.forgetUnscheduled(nil)
		if !r.markUnscheduledDeleted(far) {
			t.Error("it is forgotten before")
		}
		r.forgetUnscheduled(nil)
		if len(r.unscheduled) > 0 {
			t.Error("it is not forgotten then")
		}
	})
}
