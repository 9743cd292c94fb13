package podgroup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

func TestClassify(t *testing.T) {
	codes := podgroup.Codes{
		Throttled: []string{"Throttling*"}, Exhausted: []string{"*Quota*"}, Denied: []string{"Forbidden*"}, Busy: []string{"IncorrectStatus"},
		Missing: []string{"*NotFound"}, Away: []string{"Internal*"}, Refused: []string{"Invalid*", "Missing*"},
	}
	for _, test := range []struct {
		action podgroup.Action
		code   string
		status int
		wait   time.Duration
		want   errdefs.Class
		delay  time.Duration
	}{
		{podgroup.ActionList, "Throttling.User", 400, 0, errdefs.RetryAfterClass, 10 * time.Second},
		{podgroup.ActionList, "", 429, 30 * time.Second, errdefs.RetryAfterClass, 30 * time.Second},
		{podgroup.ActionCreate, "InvalidQuota", 400, 0, errdefs.RetryAfterClass, time.Minute},
		{podgroup.ActionDelete, "Forbidden.RAM", 403, 0, errdefs.RetryAfterClass, time.Minute},
		{podgroup.ActionUpdate, "IncorrectStatus", 400, 0, errdefs.ConflictClass, 0},
		{podgroup.ActionDelete, "GroupNotFound", 404, 0, errdefs.NotFoundClass, 0},
		{podgroup.ActionCreate, "SecurityGroupNotFound", 404, 0, errdefs.PermanentClass, 0},
		{podgroup.ActionList, "RegionNotFound", 404, 0, errdefs.RetryAfterClass, time.Minute},
		{podgroup.ActionCreate, "InvalidParameter", 400, 0, errdefs.PermanentClass, 0},
		{podgroup.ActionExec, "InvalidCommand", 400, 0, errdefs.InvalidInputClass, 0},
		{podgroup.ActionDelete, "InvalidParameter", 400, 0, errdefs.RetryAfterClass, time.Minute}, // it has to succeed some day
		{podgroup.ActionCreate, "InternalError", 500, 0, errdefs.UnavailableClass, 0},
		{podgroup.ActionCreate, "Unheard", 400, 0, errdefs.RetryAfterClass, time.Minute},
		{podgroup.ActionDelete, "", 404, 0, errdefs.UnavailableClass, 0}, // of a proxy before the service
		{podgroup.ActionCreate, "", 502, 7 * time.Second, errdefs.RetryAfterClass, 7 * time.Second},
	} {
		err := codes.Classify(test.action, test.code, test.status, test.wait, errors.New("refused"))
		if delay, _ := errdefs.RetryAfter(err); errdefs.ClassOf(err) != test.want || delay != test.delay {
			t.Errorf("%s, %q, %d: class %s after %s, want %s after %s", test.action, test.code, test.status, errdefs.ClassOf(err), delay, test.want, test.delay)
		}
	}
	if err := codes.Classify(podgroup.ActionList, "", 0, 0, nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

// Two nodes of one account share the quota, and the silence after a refusal.
func TestSharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := grouptest.New(time.Second), options()
		w.SetQuota("", 60)
		o.Budget = podgroup.NewBudget(map[podgroup.Action]int{podgroup.AnyAction: 60})
		one, two := grouptest.NewCluster("home"), grouptest.NewCluster("home")
		a, _ := one.Start(t, listing{memory{w}}, o)
		b, _ := two.Start(t, listing{memory{w}}, o)
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = a.GetPods(ctx) // may have to wait for longer
			_, _ = b.GetPods(ctx)
			cancel()
			time.Sleep(300 * time.Millisecond)
		}
		if n := w.Refused(); n != 0 {
			t.Errorf("%d of %d calls were beyond the quota", n, w.Calls(""))
		}
		time.Sleep(time.Minute)
		w.Refuse("list", 1, grouptest.ErrQuota)
		if _, err := a.GetPods(t.Context()); err == nil {
			t.Fatal("the list was not refused")
		}
		before := w.Calls("")
		if _, err := b.GetPods(t.Context()); err == nil || w.Calls("") != before {
			t.Errorf("another node of the account calls right after a refusal for too many calls (error %v)", err)
		}
	})
}

// The calls that a backend makes of its own are within the budget, and a refusal of one for too
// many calls begins a silence of its action alone.
func TestBudgetOfABackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := podgroup.NewBudget(map[podgroup.Action]int{"scarce": 2})
		made := 0
		call := func(action podgroup.Action, result error) error {
			return b.Do(t.Context(), action, func() error {
				made++
				return result
			})
		}
		failed := errors.New("failed")
		if err := call("show", failed); !errors.Is(err, failed) {
			t.Errorf("the error of a call becomes %v", err)
		}
		if err := call("show", podgroup.Throttled(failed, 20*time.Second)); !errors.Is(err, failed) {
			t.Errorf("the error of a refusal becomes %v", err)
		}
		time.Sleep(15 * time.Second)
		if err := call("show", nil); !errors.Is(err, failed) || made != 2 {
			t.Errorf("before the silence is over there are %d calls, error %v", made, err)
		}
		if err := call("another", nil); err != nil {
			t.Errorf("a silence of one action is one of another: %v", err)
		}
		time.Sleep(5 * time.Second)
		if err := call("show", nil); err != nil || made != 4 {
			t.Errorf("after the silence there are %d calls, error %v", made, err)
		}
		if err := call("scarce", nil); err != nil {
			t.Error(err)
		}
		began := time.Now()
		err := call("scarce", nil)
		if delay, later := errdefs.RetryAfter(err); !later || delay <= 0 || made != 5 || time.Since(began) > 5*time.Second {
			t.Errorf("beyond the budget there are %d calls after %s, error %v", made, time.Since(began), err)
		}
	})
}
