package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hang is a hook of a call that hangs until its context ends.
func hang(ctx context.Context, _ *corev1.Pod) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A create that hangs ends when its pod is not wanted any more. The provider is told
// to end the pod all the same, since it may have come to be.
func TestHungCreateIsCancelled(t *testing.T) {
	for name, tc := range map[string]struct {
		unwant func(*rig)
		after  []string // calls for the pod, UID 1
		phase  corev1.PodPhase
	}{
		"deleted":       {func(r *rig) { r.api.deletePod("web") }, []string{"delete web uid-1001 grace 30"}, ""},
		"force-deleted": {func(r *rig) { r.api.deletePod("web", 0) }, []string{"delete web uid-1001 grace 30"}, ""},
		"gone in a gap": {func(r *rig) { r.api.gap(func() { r.api.deletePod("web", 0) }) }, []string{"delete web uid-1001 grace 30"}, ""},
		"replaced":      {func(r *rig) { r.replace("web") }, []string{"delete web uid-1001 grace 30", "create web uid-1002"}, corev1.PodRunning},
		"replaced in a gap": {func(r *rig) { r.api.gap(func() { r.replace("web") }) },
			[]string{"delete web uid-1001 grace 30", "create web uid-1002"}, corev1.PodRunning},
		"failed by others": {func(r *rig) {
			r.api.changePod("web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}, []string{"delete web uid-1001 grace 30"}, corev1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.provider.script(func(s *script) {
					s.onCreate = func(ctx context.Context, pod *corev1.Pod) error {
						if pod.UID == "uid-1001" {
							return hang(ctx, pod)
						}
						return nil
					}
				})
				r.api.addPod(aPod("web"))
				pass(time.Hour)
				wantList(t, "calls before", r.provider.took("create", "delete"), "create web uid-1001")
				r.events.recorded()
				tc.unwant(r)
				pass(30 * time.Second)
				wantList(t, "calls after", r.provider.took("create", "delete"), tc.after...)
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
		r.api.addPod(aPod("web"))
		r.provider.script(func(s *script) { s.onUpdate = hang })
		pass(time.Second)
		r.api.changePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		pass(time.Hour)
		want(t, "updates", len(r.provider.took("update")), 1)
		r.api.deletePod("web")
		pass(time.Second)
		want(t, "deletes", len(r.provider.took("delete")), 1)
		want(t, "pod", r.api.pod("web"), nil)
	})
}

// Creates that take long are not cancelled as long as their pods are wanted,
// whatever else becomes of them.
func TestLongCreateIsNotCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.script(func(s *script) {
			s.onCreate = func(ctx context.Context, _ *corev1.Pod) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(20 * time.Minute):
					return nil
				}
			}
		})
		r.api.addPod(aPod("web"))
		for i := range 19 {
			pass(time.Minute)
			r.api.changePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "n", fmt.Sprint(i)) })
		}
		r.api.gap(func() {})
		pass(2 * time.Minute)
		want(t, "creates", len(r.provider.took("create")), 1)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Creates that hang, as many as you like, hold up the end of no pod, of those that
// wait for their turn neither.
func TestHungCreatesDoNotHoldUpEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start() // three workers
		for i := range 5 {
			r.api.addPod(aPod(fmt.Sprint("runs-", i)))
		}
		pass(time.Second)
		release := make(chan struct{})
		defer close(release)
		r.provider.script(func(s *script) {
			s.onCreate = func(context.Context, *corev1.Pod) error { <-release; return nil }
		})
		for i := range 10 {
			r.api.addPod(aPod(fmt.Sprint("hangs-", i)))
		}
		pass(time.Minute)
		begun := len(r.provider.took("create hangs-"))
		want(t, "creates at once", begun, 3)
		for i := range 5 {
			r.api.deletePod(fmt.Sprint("runs-", i))
		}
		synctest.Wait()
		want(t, "deletes", len(r.provider.took("delete")), 5)
		for i := range 5 {
			want(t, "pod", r.api.pod(fmt.Sprint("runs-", i)), nil)
		}
		left := 0
		for i := range 10 {
			r.api.deletePod(fmt.Sprint("hangs-", i))
		}
		synctest.Wait()
		for i := range 10 {
			if r.api.pod(fmt.Sprint("hangs-", i)) != nil {
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
				r.provider.script(func(s *script) {
					s.onCreate = func(_ context.Context, pod *corev1.Pod) error {
						if pod.Name == "web" && pod.UID == "uid-1001" || pod.Name[0] == 's' {
							<-release
						}
						return nil
					}
				})
				r.api.addPod(aPod("web"))
				for _, name := range []string{"stuck-1", "stuck-2"} {
					r.api.addPod(aPod(name))
				}
				synctest.Wait()
				var next string
				if recreated {
					_, uid := r.replace("web")
					next = "create web " + string(uid)
				} else {
					r.api.deletePod("web")
				}
				for _, name := range []string{"stuck-1", "stuck-2"} {
					r.api.deletePod(name, 0)
				}
				r.api.addPod(aPod("other"))
				pass(time.Second)
				want(t, "phase of one that waits", r.phase("other"), corev1.PodPending)
				pass(abandonAfter)
				want(t, "phase of one that waited", r.phase("other"), corev1.PodRunning)
				r.provider.took()
				pass(time.Hour)
				wantList(t, "calls for the name", r.provider.took("create web", "delete web"))
				close(release)
				pass(time.Minute)
				calls := r.provider.took("create", "delete")
				slices.Sort(calls)
				wanted := []string{"delete stuck-1 uid-1002 grace 30", "delete stuck-2 uid-1003 grace 30", "delete web uid-1001 grace 30"}
				if recreated {
					wanted = append([]string{next}, wanted...)
				}
				wantList(t, "calls when they have returned", calls, wanted...)
				want(t, "pods held", len(r.provider.holds("web")), len(wanted)-3)
				want(t, "pods held", len(r.provider.holds("stuck-1"))+len(r.provider.holds("stuck-2")), 0)
			})
		})
	}
}

// A create that succeeds just as it is cancelled has created a pod, which is ended.
func TestCancellationThatComesTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.script(func(s *script) {
			s.onCreate = func(ctx context.Context, pod *corev1.Pod) error { <-ctx.Done(); return nil }
		})
		r.api.addPod(aPod("web"))
		pass(time.Second)
		r.api.deletePod("web")
		pass(5 * time.Second)
		wantList(t, "calls", r.provider.took("create", "delete"), "create web uid-1001", "delete web uid-1001 grace 30")
		want(t, "pod", r.api.pod("web"), nil)
		want(t, "pods held", len(r.provider.holds("web")), 0)
	})
}

// A cancelled create whose pod appears in the provider only after it was asked.
func TestCancelledCreateThatTakesEffectLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		deleted := false
		r.provider.script(func(s *script) {
			s.onCreate = hang
			s.onDelete = func(_ context.Context, pod *corev1.Pod) error {
				if !deleted { // the backend is told, and has the pod by now
					deleted = true
					r.provider.hold(pod, corev1.PodRunning)
				}
				return nil
			}
		})
		r.api.addPod(aPod("web"))
		pass(time.Second)
		r.api.deletePod("web")
		pass(time.Minute)
		want(t, "pod", r.api.pod("web"), nil)
		want(t, "pods held", len(r.provider.holds("web")), 0)
	})
}
