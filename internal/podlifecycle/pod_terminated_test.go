package podlifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 4: a pod whose containers had all ended before its deletion leaves the API with how they ended, also if the
// provider has no word on it any more after that.
func TestLastStatusOfContainersThatEndedBeforeTheDeletion(t *testing.T) {
	for name, script := range map[string]func(*nodetest.Script){
		"DeletePod removes it": func(s *nodetest.Script) {
			s.Lingers = true // so that nobody is notified
			s.OnGet = func(string) error { return errdefs.NotFound("what pod?") }
		},
		"DeletePod says NotFound": func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errdefs.NotFound("what pod?") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, r *rig) {
				r.startWith(aPod("web"))
				r.provider.ChangePod("web", endContainers)
				pass(10 * time.Second)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				r.provider.Script(script)
				r.api.Fail("delete pods", apierrors.NewInternalError(errors.New("to see what is there before")))
				r.api.Written()
				r.api.DeletePod("web")
				synctest.Wait()
				last := r.api.Pod("web").Status
				want(t, "last phase", last.Phase, corev1.PodSucceeded)
				want(t, "exit code", last.ContainerStatuses[0].State.Terminated.ExitCode, 0)
				r.provider.Forget("web")
				r.api.Fail("delete pods", nil)
				pass(time.Minute)
				want(t, "pod", r.api.Pod("web"), nil)
				writes := r.api.Written()
				want(t, "first write", writes[0], "patch pods/status web")
			})
		})
	}
}

// Invariant 4: that a pod has stopped is what lists say, too, where it cannot be read and nobody is notified.
func TestListThatConfirmsAnEnd(t *testing.T) {
	for name, listed := range map[string]func(*corev1.Pod){
		"all containers have ended": endContainers,
		"it says less":              func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodRunning} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				pod := r.startWith(aPod("web"))
				r.provider.ChangePod("web", endContainers)
				r.provider.Script(func(s *nodetest.Script) {
					s.Lingers = true
					s.OnGet = func(string) error { return errors.New("no address") }
					s.List = func() []*corev1.Pod {
						pod := pod.DeepCopy()
						listed(pod)
						return []*corev1.Pod{pod}
					}
				})
				pass(10 * time.Minute)
				r.api.DeletePod("web")
				pass(6 * time.Minute) // in which there is a list
				want(t, "pod is still there", r.api.Pod("web") != nil, name == "it says less")
				r.provider.SetPhase("web", corev1.PodSucceeded)
				pass(time.Second)
				want(t, "pod", r.api.Pod("web"), nil)
			})
		})
	}
}

// Invariant 4: an answer without a phase does not confirm what was seen before the end was asked for.
func TestAnswerWithoutAPhaseConfirmsNoEnd(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.ChangePod("web", endContainers)
		pass(10 * time.Second)
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.Show = func(p *corev1.Pod) *corev1.Pod { p.Status = corev1.PodStatus{}; return p }
		})
		r.api.DeletePod("web")
		pass(10 * time.Minute)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API before it was known to have stopped")
		}
		r.provider.Script(func(s *nodetest.Script) { s.Show = nil })
		pass(10 * time.Second)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// oldList has the provider be asked for a list, which shows the pod as change makes it and is answered once answer is
// called, after any change.
func (r *rig) oldList(pod *corev1.Pod, change func(*corev1.Pod)) (answer func()) {
	answered := make(chan struct{})
	r.provider.Script(func(s *nodetest.Script) {
		s.List = func() []*corev1.Pod {
			old := pod.DeepCopy()
			change(old)
			<-answered
			return []*corev1.Pod{old}
		}
	})
	pass(5 * time.Second) // it is asked for
	r.provider.Script(func(s *nodetest.Script) { s.List = nil })
	return func() {
		close(answered)
		synctest.Wait()
	}
}

// Invariant 4: that all containers have ended is no end of the pod in a list that was asked for before its deletion, and
// is answered afterwards.
func TestListFromBeforeTheDeletion(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		pod := r.api.AddPod(aPod("web"))
		pass(time.Minute)
		answer := r.oldList(pod, endContainers)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(string) error { return errdefs.AsUnavailable(errors.New("away")) }
		})
		r.api.DeletePod("web")
		synctest.Wait()
		want(t, "deletes", len(r.provider.TakeCalls("delete")), 1)
		answer()
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API before it had stopped")
		}
		r.provider.Forget("web")
	})
}

// What such a list shows is how the pod has ended all the same, where there is no later word on it: a terminal phase,
// or the exit codes of all containers.
func TestEndInAListFromBeforeTheDeletion(t *testing.T) {
	for name, ended := range map[string]func(*corev1.Pod){
		"a terminal phase": func(p *corev1.Pod) { p.Status = nodetest.StatusOf(p, corev1.PodSucceeded) },
		"exit codes":       endContainers,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				pod := r.startWith(aPod("job", func(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }))
				pass(time.Minute)
				answer := r.oldList(pod, ended)
				r.provider.Script(func(s *nodetest.Script) {
					s.OnDelete = func(context.Context, *corev1.Pod) error {
						answer() // DeletePod returns afterwards
						return nil
					}
				})
				r.api.DeletePod("job")
				pass(10 * time.Second)
				want(t, "phase", r.phase("job"), corev1.PodSucceeded)
			})
		})
	}
}
