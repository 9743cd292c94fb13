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
// the container. Whoever removed it now would have it run twice.
func TestAStartThatIsUnderWayIsTakenUp(t *testing.T) {
	for name, comes := range map[string]time.Duration{"at once": 0, "later": 2500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["a"] = plan{runs: time.Minute, code: 3}
				pod := makePod("a", never)
				id := r.createdOnly(pod).Id
				r.events.take()
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

// containerd gives up a start when the process that has asked for it is killed.
// If that was before the command ran, the container has not run.
func TestAStartThatWasGivenUpIsNoRun(t *testing.T) {
	for message, want := range map[string]string{
		"failed to create containerd task: failed to create shim task: context canceled: unknown": "Succeeded a=Completed/0",
		// The command may have run, and must not run twice.
		`failed to start containerd task "x": context canceled: unknown`: "Failed a=StartError/128",
		// Nothing was given up: it cannot run.
		"failed to create containerd task: failed to create shim task: OCI runtime create failed": "Failed a=StartError/128",
	} {
		inBubble(t, func(r *rig) {
			r.runtime.plans["a"] = plan{runs: time.Second}
			pod := makePod("a", never)
			c := r.createdOnly(pod)
			r.runtime.set(func() {
				c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, 128, time.Now().UnixNano()
				c.Reason, c.Message = "StartError", message
			})
			r.begin()
			r.after(time.Minute)
			r.wantState(pod, want)
		})
	}
}

// A start is not broken off: nobody could tell whether the command has run.
func TestAStartIsNotBrokenOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call == "StartContainer a" {
				time.Sleep(5 * time.Second)
			}
			return ctx.Err()
		})
		r.create(pod)
		r.delete(pod, 30)
		r.after(time.Second)
		r.end() // while the container is being started
		if c := r.runtime.newest("a"); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container is %v", c.State)
		}
		r.runtime.intercept(nil)
		r.begin()
		r.after(time.Second)
		r.wantGone(pod)
	})
}
