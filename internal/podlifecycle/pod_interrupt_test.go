package podlifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// hang is a hook of a call that hangs until its context ends.
func hang(ctx context.Context, _ *corev1.Pod) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A create that hangs ends when its pod is not wanted any more. The provider is asked
// to end the pod all the same, since it may have come to be.
func TestHungCreateIsCancelled(t *testing.T) {
	for name, tc := range map[string]struct {
		unwant func(*rig)
		after  []string // calls for the pod, UID 1
		phase  corev1.PodPhase
	}{
		"deleted":       {func(r *rig) { r.api.DeletePod("web") }, []string{"delete web uid-1001 grace 30"}, ""},
		"force-deleted": {func(r *rig) { r.api.DeletePod("web", 0) }, []string{"delete web uid-1001 grace 30"}, ""},
		"gone in a gap": {func(r *rig) { r.api.Gap(func() { r.api.DeletePod("web", 0) }) }, []string{"delete web uid-1001 grace 30"}, ""},
		"replaced":      {func(r *rig) { r.replace("web") }, []string{"delete web uid-1001 grace 30", "create web uid-1002"}, corev1.PodRunning},
		"replaced in a gap": {func(r *rig) { r.api.Gap(func() { r.replace("web") }) },
			[]string{"delete web uid-1001 grace 30", "create web uid-1002"}, corev1.PodRunning},
		"failed by others": {func(r *rig) {
			r.api.ChangePod("web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}, []string{"delete web uid-1001 grace 30"}, corev1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.provider.Script(func(s *nodetest.Script) {
					s.OnCreate = func(ctx context.Context, pod *corev1.Pod) error {
						if pod.UID == "uid-1001" {
							return hang(ctx, pod)
						}
						return nil
					}
				})
				r.api.AddPod(aPod("web"))
				pass(time.Hour)
				wantList(t, "calls before", r.provider.TakeCalls("create", "delete"), "create web uid-1001")
				r.events.recorded()
				tc.unwant(r)
				pass(30 * time.Second)
				wantList(t, "calls after", r.provider.TakeCalls("create", "delete"), tc.after...)
				want(t, "phase", r.phase("web"), tc.phase)
				for _, event := range r.events.recorded() {
					if event == "Warning ProviderCreateFailed: "+errNotWanted.Error() {
						t.Errorf("event %q: it is no failure", event)
					}
				}
			})
		})
	}
}

// An update that hangs ends when its pod is deleted.
func TestHungUpdateIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) { s.OnUpdate = hang })
		pass(time.Second)
		r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		pass(time.Hour)
		want(t, "updates", len(r.provider.TakeCalls("update")), 1)
		r.api.DeletePod("web")
		pass(time.Second)
		want(t, "deletes", len(r.provider.TakeCalls("delete")), 1)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Creates that take long are not cancelled as long as their pods are wanted,
// no matter what else becomes of them.
func TestLongCreateIsNotCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(ctx context.Context, _ *corev1.Pod) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(20 * time.Minute):
					return nil
				}
			}
		})
		r.api.AddPod(aPod("web"))
		for i := range 19 {
			pass(time.Minute)
			r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "n", fmt.Sprint(i)) })
		}
		r.api.Gap(func() {})
		pass(2 * time.Minute)
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Creates that hang, as many as you like, hold up the end of no pod, of those that
// wait for their turn neither.
func TestHungCreatesDoNotHoldUpEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start() // three workers
		for i := range 5 {
			r.api.AddPod(aPod(fmt.Sprint("runs-", i)))
		}
		pass(time.Second)
		release := make(chan struct{})
		defer close(release)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { <-release; return nil }
		})
		for i := range 10 {
			r.api.AddPod(aPod(fmt.Sprint("hangs-", i)))
		}
		pass(time.Minute)
		begun := len(r.provider.TakeCalls("create hangs-"))
		want(t, "creates at once", begun, 3)
		for i := range 5 {
			r.api.DeletePod(fmt.Sprint("runs-", i))
		}
		synctest.Wait()
		want(t, "deletes", len(r.provider.TakeCalls("delete")), 5)
		for i := range 5 {
			want(t, "pod", r.api.Pod(fmt.Sprint("runs-", i)), nil)
		}
		left := 0
		for i := range 10 {
			r.api.DeletePod(fmt.Sprint("hangs-", i))
		}
		synctest.Wait()
		for i := range 10 {
			if r.api.Pod(fmt.Sprint("hangs-", i)) != nil {
				left++
			}
		}
		want(t, "pods whose create hangs, and nobody can tell what comes of it", left, 3)
	})
}

// A create that goes on although its context was cancelled: nothing is created
// twice, and its pod is ended when it has returned; others get its place meanwhile.
func TestCreateThatIgnoresItsContext(t *testing.T) {
	for _, recreated := range []bool{false, true} {
		t.Run(fmt.Sprint("recreated=", recreated), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				release := make(chan struct{})
				r.start()
				r.provider.Script(func(s *nodetest.Script) {
					s.OnCreate = func(_ context.Context, pod *corev1.Pod) error {
						if pod.Name == "web" && pod.UID == "uid-1001" || pod.Name[0] == 's' {
							<-release
						}
						return nil
					}
				})
				r.api.AddPod(aPod("web"))
				for _, name := range []string{"stuck-1", "stuck-2"} {
					r.api.AddPod(aPod(name))
				}
				synctest.Wait()
				var next string
				if recreated {
					_, uid := r.replace("web")
					next = "create web " + string(uid)
				} else {
					r.api.DeletePod("web")
				}
				for _, name := range []string{"stuck-1", "stuck-2"} {
					r.api.DeletePod(name, 0)
				}
				r.api.AddPod(aPod("other"))
				pass(time.Second)
				want(t, "phase of one that waits", r.phase("other"), corev1.PodPending)
				pass(abandonAfter)
				want(t, "phase of one that waited", r.phase("other"), corev1.PodRunning)
				r.provider.TakeCalls()
				pass(time.Hour)
				wantList(t, "calls for the name", r.provider.TakeCalls("create web", "delete web"))
				close(release)
				pass(time.Minute)
				calls := r.provider.TakeCalls("create", "delete")
				slices.Sort(calls)
				wanted := []string{"delete stuck-1 uid-1002 grace 30", "delete stuck-2 uid-1003 grace 30", "delete web uid-1001 grace 30"}
				if recreated {
					wanted = append([]string{next}, wanted...)
				}
				wantList(t, "calls when they have returned", calls, wanted...)
				want(t, "pods held", len(r.provider.Holds("web")), len(wanted)-3)
				want(t, "pods held", len(r.provider.Holds("stuck-1"))+len(r.provider.Holds("stuck-2")), 0)
			})
		})
	}
}

// A create that succeeds just as it is cancelled has created a pod, which is ended.
func TestCancellationThatComesTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(ctx context.Context, pod *corev1.Pod) error { <-ctx.Done(); return nil }
		})
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.api.DeletePod("web")
		pass(5 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web uid-1001", "delete web uid-1001 grace 30")
		want(t, "pod", r.api.Pod("web"), nil)
		want(t, "pods held", len(r.provider.Holds("web")), 0)
	})
}

// A cancelled create whose pod appears in the provider only after it was asked.
func TestCancelledCreateThatTakesEffectLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		deleted := false
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = hang
			s.OnDelete = func(_ context.Context, pod *corev1.Pod) error {
				if !deleted { // the backend is asked, and has the pod by now
					deleted = true
					r.provider.Hold(pod, corev1.PodRunning)
				}
				return nil
			}
		})
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.api.DeletePod("web")
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
		want(t, "pods held", len(r.provider.Holds("web")), 0)
	})
}

// Calls that hang, even when their contexts have ended, hold up their own pods only.
func TestHungCallsHoldUpNoOtherPods(t *testing.T) {
	for name, hangs := range map[string]func(s *nodetest.Script, release chan struct{}){
		"ends": func(s *nodetest.Script, release chan struct{}) {
			s.OnDelete = func(_ context.Context, pod *corev1.Pod) error {
				if pod.Name != "free" {
					<-release
				}
				return nil
			}
		},
		"questions": func(s *nodetest.Script, release chan struct{}) {
			s.Lingers = true
			s.OnGet = func(name string) error {
				if name != "free" && name != "late" {
					<-release
				}
				return nil
			}
		},
		"creates": func(s *nodetest.Script, release chan struct{}) {
			s.OnCreate = func(_ context.Context, pod *corev1.Pod) error {
				if pod.Name != "late" {
					<-release
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start() // three workers
				stuck := []string{"a", "b", "c", "d", "e"}
				r.api.AddPod(aPod("free"))
				if name != "creates" {
					for _, name := range stuck {
						r.api.AddPod(aPod(name))
					}
				}
				pass(time.Second)
				release := make(chan struct{})
				defer close(release)
				r.provider.Script(func(s *nodetest.Script) { hangs(s, release) })
				for _, name := range stuck {
					if r.api.Pod(name) == nil {
						r.api.AddPod(aPod(name))
					} else {
						r.api.DeletePod(name)
					}
				}
				pass(2 * longCallLimit)
				r.api.DeletePod("free")
				r.api.AddPod(aPod("late"))
				pass(2 * longCallLimit)
				if name == "questions" {
					r.provider.Forget("free")
					pass(time.Minute)
				}
				want(t, "pod that was deleted", r.api.Pod("free"), nil)
				want(t, "phase of the pod that came late", r.phase("late"), corev1.PodRunning)
			})
		})
	}
}

// A question, or the end of a pod, that hangs until its context ends is tried again.
func TestHungCallsAreTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		var hung atomic.Int32
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(ctx context.Context, pod *corev1.Pod) error {
				if hung.Add(1) == 1 {
					return hang(ctx, pod)
				}
				return nil
			}
		})
		r.api.DeletePod("web")
		pass(slowRequest)
		want(t, "deletes while it may still answer", hung.Load(), 1)
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}
