package podengine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A clock that is set back does not make an older attempt the newest.
func TestTheClockIsSetBack(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: 2 * time.Second, code: 1} }, func(r *rig) {
		starts := r.starts("StartContainer a")
		pod := makePod("a", onFailure)
		r.create(pod)
		r.runtime.set(func() {
			r.runtime.skew, r.runtime.plans["a"] = -time.Hour, plan{runs: 2 * time.Second}
		})
		r.after(10 * time.Minute)
		r.wantState(pod, "Succeeded a=Completed/0#1")
		if n := len(starts()); n != 2 {
			t.Errorf("it was started %d times, want 2", n)
		}
	})
}

func TestTheClockIsSetBackBeforeANewSandbox(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.runtime.set(func() { r.runtime.skew = -time.Hour })
		r.runtime.loseSandbox(r.runtime.box())
		made := 0
		r.runtime.intercept(func(_ context.Context, call string) error {
			if call != "RunPodSandbox p" {
				return nil
			}
			if made++; made > 1 {
				return errors.New("one is enough")
			}
			return nil
		})
		r.after(10 * time.Minute)
		r.wantState(pod, "Running a=ready#1")
		if made != 1 {
			t.Errorf("%d sandboxes were made, want 1", made)
		}
	})
}

// An end that is in the future holds no restart up for longer than the back-off.
func TestTheEndOfAContainerIsInTheFuture(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.runtime.skew, r.runtime.plans["a"] = time.Hour, plan{runs: 2 * time.Second, code: 1}
	}, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.after(8 * time.Second)
		r.wantState(pod, "Running a=CrashLoopBackOff#1")
		r.after(52 * time.Second) // pauses of 0, 10 and 20 s, then 40 s
		r.wantState(pod, "Running a=CrashLoopBackOff#3")
	})
}
