package podlifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Of a pod that does not come people see why, since when and what is next, and of one that has
// come how long each step took; an error that was overcome is not shown.
func TestReportOfAPodOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		report := func() PodReport {
			t.Helper()
			reports := r.pc.PodReports()
			if len(reports) != 1 {
				t.Fatalf("%d reports, want one", len(reports))
			}
			return reports[0]
		}
		r.start()
		want(t, "reports", len(r.pc.PodReports()), 0)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no room") }
		})
		seen := time.Now()
		r.api.AddPod(aPod("web"))
		pass(10 * time.Second)
		got := report()
		want(t, "name", got.Namespace+"/"+got.Name, "default/web")
		want(t, "phase", got.Phase, corev1.PodPending)
		want(t, "error", got.Error, "no room")
		want(t, "seen", got.SeenAt, seen)
		if got.Tries < 2 || !got.NextTry.After(time.Now()) || got.ErrorAt.Before(seen) {
			t.Errorf("got %d tries, the next at %v, the last failed at %v", got.Tries, got.NextTry, got.ErrorAt)
		}
		if !got.CreatedAt.IsZero() || !got.RunningAt.IsZero() {
			t.Errorf("it was created at %v, and runs since %v", got.CreatedAt, got.RunningAt)
		}

		hang := make(chan struct{})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { <-hang; return nil }
		})
		pass(time.Minute)
		got = report()
		want(t, "call", got.Call.Method, "CreatePod")
		if !got.NextTry.IsZero() {
			t.Errorf("the next try is at %v, while one goes on", got.NextTry)
		}
		close(hang)
		synctest.Wait()
		got = report()
		want(t, "error", got.Error, "")
		want(t, "tries", got.Tries, 0)
		want(t, "call", got.Call.Method, "")
		want(t, "created", got.CreatedAt, time.Now())
		want(t, "phase", got.Phase, corev1.PodRunning)

		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errors.New("not now") }
		})
		deleted := time.Now()
		r.api.DeletePod("web", 30)
		pass(time.Second)
		got = report()
		want(t, "deleted", got.DeletedAt, deleted)
		want(t, "error", got.Error, "not now")
		if !got.StoppedAt.IsZero() {
			t.Errorf("it was stopped at %v", got.StoppedAt)
		}
	})
}
