package podengine

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// forget has the runtime lose all that it knows, as one does whose state does not
// outlive a reboot. What ran does not run any more.
func (f *fakeRuntime) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.containers {
		f.end(c, 137)
		delete(f.containers, id)
	}
	clear(f.boxes)
}

// reboot has all that ran end, as the machine is booted.
func (f *fakeRuntime) reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		f.end(c, 137)
	}
	for _, box := range f.boxes {
		box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
}

// hide has the runtime answer empty lists until the function that it returns is
// called, while all that runs runs on.
func (f *fakeRuntime) hide() (show func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	boxes, containers := f.boxes, f.containers
	f.boxes, f.containers = map[string]*fakeBox{}, map[string]*fakeContainer{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.boxes, f.containers = boxes, containers
	}
}

// What the runtime has forgotten is not run again unless its restart policy says
// so, and says what it is known of its end: as after a reboot with a runtime that
// keeps its state in memory. The API server is not asked for anything.
func TestWhatTheRuntimeHasForgotten(t *testing.T) {
	for name, test := range map[string]struct {
		policy func(*corev1.Pod)
		plan   plan
		before string
		want   string
		starts int // of the container, in all
	}{
		"finished well":              {never, plan{runs: time.Second}, "Succeeded a=Completed/0", "Succeeded a=Completed/0", 1},
		"finished badly":             {never, plan{runs: time.Second, code: 3}, "Failed a=Error/3", "Failed a=Error/3", 1},
		"finished well, OnFailure":   {onFailure, plan{runs: time.Second}, "Succeeded a=Completed/0", "Succeeded a=Completed/0", 1},
		"was running, Never":         {never, plan{}, "Running a=ready", "Failed a=ContainerStatusUnknown/137", 1},
		"was running, OnFailure":     {onFailure, plan{}, "Running a=ready", "Running a=ready#1", 2},
		"was running, Always":        {func(*corev1.Pod) {}, plan{}, "Running a=ready", "Running a=ready#1", 2},
		"in the back-off of crashes": {func(*corev1.Pod) {}, plan{runs: 2 * time.Second, code: 1}, "Running a=CrashLoopBackOff#3", "Running a=ready#4", 5},
	} {
		for _, boot := range []string{"", "another"} {
			t.Run(name+boot, func(t *testing.T) {
				inBubbleWith(t, func(r *rig) { r.cfg.Boot = "one" }, func(r *rig) {
					r.runtime.plans["a"] = test.plan
					pod := makePod("a", test.policy)
					r.create(pod)
					r.after(time.Minute)
					r.wantState(pod, test.before)
					starts := strings.Count(strings.Join(r.runtime.did(), "\n"), "StartContainer a")
					r.end()
					r.runtime.forget()
					r.runtime.set(func() { delete(r.runtime.plans, "a") })
					if boot != "" {
						r.cfg.Boot = boot
					}
					r.begin()
					if boot == "" {
						r.after(lostAfter + 11*time.Second)
					} else {
						r.after(11 * time.Second) // what ran before the machine was booted does not run
					}
					r.wantState(pod, test.want)
					starts += strings.Count(strings.Join(r.runtime.did(), "\n"), "StartContainer a")
					if starts != test.starts {
						t.Errorf("the container was started %d times, want %d", starts, test.starts)
					}
					if last := r.status(pod).ContainerStatuses[0]; test.starts == 2 && (last.LastTerminationState.Terminated == nil || last.LastTerminationState.Terminated.Reason != "ContainerStatusUnknown") {
						t.Errorf("the last state is %v", last.LastTerminationState)
					}
					r.restart(time.Hour)
					r.after(5 * time.Minute)
					r.wantState(pod, test.want)
					r.delete(pod, 30)
					r.after(time.Second)
					r.wantGone(pod)
				})
			})
		}
	}
}

// A runtime that restarts answers empty lists for a while. Nothing is lost by that,
// nothing is made again, and no pod is taken for ended that is to end.
func TestEmptyListsForHalfAMinute(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["b"] = plan{runs: time.Second, code: 1}
		runs, crashes, ends := makePod("a"), makePod("b"), makePod("c")
		crashes.Name, ends.Name = "crashes", "ends"
		for _, pod := range []*corev1.Pod{runs, crashes, ends} {
			r.create(pod)
		}
		r.after(20 * time.Second)
		for _, restarted := range []bool{false, true} {
			r.runtime.did()
			show := r.runtime.hide()
			if restarted {
				r.restart(0)
			} else {
				r.after(5 * time.Second)
				r.delete(ends, 5)
			}
			r.after(30 * time.Second)
			r.wantState(runs, "Running a=ready")
			r.wantCalls()
			if _, err := r.GetPodByUID(r.ctx, "ns", "ends", ends.UID); !restarted && err != nil {
				t.Errorf("the pod that is to end has gone, though its container runs: %v", err)
			}
			show()
			r.after(10 * time.Second)
			r.wantState(runs, "Running a=ready")
			for _, call := range r.runtime.did() {
				if strings.HasPrefix(call, "RunPodSandbox") || call == "StartContainer a" {
					t.Errorf("the runtime was asked to %s", call)
				}
			}
			r.after(2 * time.Minute)
		}
		if _, err := r.GetPodByUID(r.ctx, "ns", "ends", ends.UID); err == nil {
			t.Error("the pod that was to end has not gone")
		}
	})
}

// A container alone that somebody has removed is replaced, soon.
func TestAContainerThatWasRemoved(t *testing.T) {
	inBubble(t, func(r *rig) {
		always, once := makePod("a"), makePod("b", never)
		once.Name = "once"
		r.create(always)
		r.create(once)
		for _, name := range []string{"a", "b"} {
			if err := r.runtime.RemoveContainer(r.ctx, r.runtime.newest(name).Id); err != nil {
				t.Fatal(err)
			}
		}
		r.after(30 * time.Second)
		r.wantState(always, "Running a=ready#1")
		r.wantState(once, "Failed b=ContainerStatusUnknown/137")
	})
}

// The start of a container is on disk before the runtime is asked for it: a process
// that is killed right after it, with a machine that fails, runs nothing twice.
func TestKilledRightAfterAStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", never)
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call == "StartContainer a" {
				return forever(ctx) // it has run, and the answer never came
			}
			return nil
		})
		r.create(pod)
		r.end()
		r.runtime.intercept(nil)
		r.runtime.forget()
		r.runtime.did()
		_ = os.Remove(r.statusPath(pod)) // nor what was known of it
		r.begin()
		r.after(2 * time.Minute)
		r.wantState(pod, "Failed a=ContainerStatusUnknown/137")
		r.wantCalls()
	})
}

// A start that cannot be recorded does not happen, if it could be one too many.
func TestAStartThatCannotBeRecorded(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("permissions do not stop root: a directory in the way does")
	}
	for name, test := range map[string]struct {
		policy func(*corev1.Pod)
		want   string
	}{
		"Never":  {never, "Pending a=ContainerCreating"},
		"Always": {func(*corev1.Pod) {}, "Running a=ready"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a", test.policy)
				blocked := r.checkpointFile(pod.UID) + unready
				r.runtime.intercept(func(_ context.Context, call string) error {
					if call == "CreateContainer a" {
						_ = os.Mkdir(blocked, 0o700) // as if the disk was full
					}
					return nil
				})
				r.create(pod)
				r.after(5 * time.Second)
				r.wantState(pod, test.want)
				r.runtime.intercept(nil)
				if err := os.Remove(blocked); err != nil {
					t.Fatal(err)
				}
				r.after(time.Minute)
				r.wantState(pod, "Running a=ready")
			})
		})
	}
}

// What cannot be written of a pod's status is written later: else its end would be
// unknown after a restart.
func TestAStatusThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: 10 * time.Second}
		pod := makePod("a", onFailure)
		r.create(pod)
		blocked := r.statusPath(pod) + unready
		if err := os.Mkdir(blocked, 0o700); err != nil {
			t.Fatal(err)
		}
		r.after(20 * time.Second)
		r.wantState(pod, "Succeeded a=Completed/0")
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		r.after(resync)
		r.end()
		r.runtime.forget()
		r.runtime.did()
		r.begin()
		r.after(2 * time.Minute)
		r.wantState(pod, "Succeeded a=Completed/0")
		r.wantCalls()
	})
}

// statusPath is where a pod's status is kept, also while there is no engine.
func (r *rig) statusPath(pod *corev1.Pod) string {
	return (&Engine{cfg: r.cfg}).statusFile(pod.UID)
}

// A container of which the runtime does not know whether it runs is stopped before
// there is another attempt.
func TestUnknownStateIsStoppedFirst(t *testing.T) {
	for name, test := range map[string]struct {
		policy func(*corev1.Pod)
		want   string
		calls  []string
	}{
		"Always": {func(*corev1.Pod) {}, "Running a=ready#1", []string{"StopContainer a 30", "CreateContainer a", "StartContainer a"}},
		"Never":  {never, "Failed a=ContainerStatusUnknown/137", []string{"StopContainer a 30", "StopPodSandbox"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a", test.policy)
				r.create(pod)
				r.runtime.did()
				failures := 2
				r.runtime.intercept(func(_ context.Context, call string) error {
					if strings.HasPrefix(call, "StopContainer") && failures > 0 {
						failures--
						return errors.New("the shim does not answer")
					}
					return nil
				})
				c := r.runtime.newest("a")
				r.runtime.set(func() { c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN })
				r.after(1500 * time.Millisecond)
				r.wantState(pod, "Running a=ready") // nothing else is known
				r.after(30 * time.Second)
				r.wantState(pod, test.want)
				calls := slices.Compact(r.runtime.did())
				if !slices.Equal(calls, test.calls) {
					t.Errorf("calls are %v, want %v", calls, test.calls)
				}
			})
		})
	}
}
