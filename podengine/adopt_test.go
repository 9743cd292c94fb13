package podengine

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// createdOnly hands a pod over whose container is created and not started, and
// ends the engine, as if it was killed in between.
func (r *rig) createdOnly(pod *corev1.Pod) *fakeContainer {
	r.t.Helper()
	r.runtime.intercept(func(_ context.Context, call string) error {
		if call == "StartContainer a" {
			return errors.New("killed before")
		}
		return nil
	})
	r.create(pod)
	r.end()
	r.runtime.intercept(nil)
	r.runtime.did()
	c := r.runtime.newest("a")
	if c.State != runtimeapi.ContainerState_CONTAINER_CREATED {
		r.t.Fatalf("the container is %v", c)
	}
	return c
}

// A process that is killed between creating a container and starting it leaves
// one that may be started, once. It is not made again: the start may be on its way.
func TestAContainerThatWasCreatedIsStarted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Minute}
		pod := makePod("a", never)
		r.createdOnly(pod)
		r.begin()
		r.after(30 * time.Second)
		r.wantState(pod, "Running a=ready")
		r.after(time.Minute)
		r.wantState(pod, "Succeeded a=Completed/0")
		r.wantCalls("StartContainer a", "StopPodSandbox")
	})
}

// The start that a killed process has asked for comes while the next one looks at
// the container. Removing it now would make it run twice.
func TestAStartThatIsUnderWayIsAdopted(t *testing.T) {
	for name, comes := range map[string]time.Duration{"at once": 0, "later": 2500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["a"] = plan{runs: time.Minute, code: 3}
				pod := makePod("a", never)
				id := r.createdOnly(pod).Id
				r.events.drain()
				restarted := time.Now()
				r.runtime.intercept(func(ctx context.Context, call string) error {
					if call != "StartContainer a" {
						return nil
					}
					if time.Since(restarted) >= comes {
						r.runtime.intercept(nil)
						if err := r.runtime.StartContainer(ctx, id); err != nil {
							t.Error(err)
						}
					}
					return errors.New("container is already in starting state")
				})
				r.begin()
				r.after(30 * time.Second)
				r.wantState(pod, "Running a=ready")
				r.wantEvents("Normal Started {a}: Container started")
				r.after(time.Minute)
				r.wantState(pod, "Failed a=Error/3")
				for _, call := range r.runtime.did() {
					if call == "CreateContainer a" || call == "RemoveContainer a" {
						t.Errorf("the runtime was asked to %s", call)
					}
				}
			})
		})
	}
}

// One that cannot be started is made again, in the end.
func TestAContainerThatCannotBeStartedIsMadeAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		broken := r.createdOnly(pod).Id
		r.runtime.intercept(func(_ context.Context, call string) error {
			if c := r.runtime.newest("a"); call == "StartContainer a" && c.Id == broken {
				return errors.New("broken")
			}
			return nil
		})
		r.begin()
		r.after(30 * time.Second)
		r.wantState(pod, "Running a=ready")
		r.wantCalls("StartContainer a", "StartContainer a", "StartContainer a", "RemoveContainer a", "CreateContainer a", "StartContainer a")
	})
}

// A runtime may give up a start when the process that has asked for it is killed. If
// that was before the command ran, the container has not run.
func TestAStartThatWasGivenUpIsNoRun(t *testing.T) {
	for neverRan, want := range map[bool]string{true: "Succeeded a=Completed/0", false: "Failed a=StartError/128"} {
		inBubble(t, func(r *rig) {
			r.cfg.NeverRan = func(s *runtimeapi.ContainerStatus) bool { return neverRan && s.Reason == "StartError" }
			r.runtime.plans["a"] = plan{runs: time.Second}
			pod := makePod("a", never)
			c := r.createdOnly(pod)
			r.runtime.set(func() {
				c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, 128, time.Now().UnixNano()
				c.Reason = "StartError"
			})
			r.begin()
			r.after(time.Minute)
			r.wantState(pod, want)
		})
	}
}

// What starts processes in the runtime, or ends them, is not broken off because the pod is deleted,
// or the engine is closed: nobody could rely on what is there then.
func TestCallsAreNotBrokenOff(t *testing.T) {
	for _, slow := range []string{"RunPodSandbox p", "StartContainer a", "StopPodSandbox"} {
		for end, f := range map[string]func(*rig, *corev1.Pod){
			"deleted": func(r *rig, pod *corev1.Pod) { r.delete(pod, 0) },
			"closed":  func(r *rig, _ *corev1.Pod) { r.end(); r.begin() },
		} {
			t.Run(slow+" "+end, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					pod := makePod("a")
					called := 0
					r.runtime.intercept(func(ctx context.Context, call string) error {
						if call != slow {
							return nil
						}
						called++
						select {
						case <-time.After(5 * time.Second):
						case <-ctx.Done():
							t.Errorf("%s was broken off", call)
						}
						return ctx.Err()
					})
					r.create(pod)
					if slow == "StopPodSandbox" {
						r.delete(pod, 30)
					}
					r.after(time.Second)
					f(r, pod)
					r.runtime.intercept(nil)
					r.after(10 * time.Second)
					if r.worker(pod.UID) != nil {
						r.delete(pod, 0)
					}
					r.after(10 * time.Second)
					r.wantGone(pod)
					if called != 1 {
						t.Errorf("%s was called %d times", slow, called)
					}
				})
			})
		}
	}
}

// A runtime that does not answer keeps nothing from ending for long.
func TestAHangingCallIsBrokenOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call == "RunPodSandbox p" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		r.create(makePod("a"))
		begin := time.Now()
		r.end()
		if took := time.Since(begin); took != unawaited {
			t.Errorf("the engine was closed in %v, want %v", took, unawaited)
		}
	})
}
