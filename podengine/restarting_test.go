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
	"k8s.io/utils/exec"
	"k8s.io/utils/ptr"
)

// unwell has the liveness probes of containers fail until the function that it returns
// is called.
func (r *rig) unwell() (heal func()) {
	r.runtime.set(func() {
		r.runtime.exec = func(context.Context, string, []string) error {
			return exec.CodeExitError{Err: errors.New("no"), Code: 1}
		}
	})
	return func() {
		r.runtime.set(func() { r.runtime.exec = func(context.Context, string, []string) error { return nil } })
	}
}

// probedForLife gives the first container a liveness probe, a second.
var probedForLife = first(func(c *corev1.Container) {
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("alive")}, PeriodSeconds: 1, FailureThreshold: 1}
})

// image2 has the first container run another image.
var image2 = first(func(c *corev1.Container) { c.Image = "image:2" })

// wantNeverEnded checks that the pod was not reported as ended at any time.
func (r *rig) wantNeverEnded(pod *corev1.Pod) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.notified {
		if phase := p.Status.Phase; p.UID == pod.UID && (phase == corev1.PodSucceeded || phase == corev1.PodFailed) {
			r.t.Errorf("the pod was reported as %s, while a container was started again", phase)
		}
	}
}

// A container that exits with 0 when it is asked to stop has not done its work: if the
// engine asks, to start it again, it is, however it ends.
func TestWhatIsStoppedToBeStartedAgainIs(t *testing.T) {
	fails := func(r *rig, _ *corev1.Pod) {
		heal := r.unwell()
		r.after(1500 * time.Millisecond)
		heal()
	}
	updates := func(changes ...func(*corev1.Pod)) func(*rig, *corev1.Pod) {
		return func(r *rig, pod *corev1.Pod) {
			pod = pod.DeepCopy()
			for _, change := range changes {
				change(pod)
			}
			r.update(pod)
		}
	}
	resizable := first(func(c *corev1.Container) {
		c.Resources.Requests = cpu("1")
		c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	})
	bigger := first(func(c *corev1.Container) { c.Resources.Requests = cpu("2") })
	loses := func(r *rig, _ *corev1.Pod) {
		box := r.runtime.box()
		r.runtime.set(func() { r.runtime.boxes[box].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
	}
	own := func(policy corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return first(func(c *corev1.Container) { c.RestartPolicy = &policy })
	}
	const probed = "Normal Killing {a}: Container a failed liveness probe"
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		stops func(*rig, *corev1.Pod)
		code  int32
		want  string
		event string
	}{
		"liveness, OnFailure":           {makePod("a", onFailure, probedForLife), fails, 0, "Running a=ready#1", probed + ", will be restarted"},
		"liveness, Never":               {makePod("a", never, probedForLife), fails, 0, "Succeeded a=Completed/0", probed},
		"liveness, Never, badly":        {makePod("a", never, probedForLife), fails, 143, "Failed a=Error/143", probed},
		"liveness, its own OnFailure":   {makePod("a", never, own(corev1.ContainerRestartPolicyOnFailure), probedForLife), fails, 0, "Running a=ready#1", probed + ", will be restarted"},
		"liveness, its own Never":       {makePod("a", onFailure, own(corev1.ContainerRestartPolicyNever), probedForLife), fails, 143, "Failed a=Error/143", probed},
		"resize, OnFailure":             {makePod("a", onFailure, resizable), updates(bigger), 0, "Running a=ready#1", "Normal Killing {a}: Container a resize requires restart"},
		"image, OnFailure":              {makePod("a", onFailure), updates(image2), 0, "Running a=ready#1", "Normal Killing {a}: Container a definition changed, will be restarted"},
		"image, Never":                  {makePod("a", never), updates(image2), 143, "Running a=ready#1", "Normal Killing {a}: Container a definition changed, will be restarted"},
		"image, its own Never":          {makePod("a", own(corev1.ContainerRestartPolicyNever)), updates(image2), 0, "Running a=ready#1", "Normal Killing {a}: Container a definition changed, will be restarted"},
		"lost sandbox, OnFailure":       {makePod("a b", onFailure), loses, 0, "Running a=ready#1 b=ready#1", "Normal Killing {a}: Stopping container a"},
		"lost sandbox, Never":           {makePod("a", never), loses, 0, "Succeeded a=Completed/0", "Normal Killing {a}: Stopping container a"},
		"lost sandbox, its own Never":   {makePod("a b", onFailure, own(corev1.ContainerRestartPolicyNever)), loses, 0, "Running a=Completed/0 b=ready#1", "Normal Killing {a}: Stopping container a"},
		"lost sandbox, init containers": {makePod("i a", onFailure), loses, 0, "Running i=Completed/0#1 a=ready#1", "Normal Killing {a}: Stopping container a"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.set(func() {
					r.runtime.exec = func(context.Context, string, []string) error { return nil }
					for _, name := range []string{"a", "b"} {
						r.runtime.plans[name] = plan{lingers: time.Second, stopCode: test.code}
					}
					r.runtime.plans["i"] = plan{runs: 100 * time.Millisecond}
				})
				r.create(test.pod)
				r.after(5 * time.Second)
				r.events.drain()
				test.stops(r, test.pod)
				r.after(10 * time.Second)
				r.wantState(test.pod, test.want)
				if events := r.events.drain(); !slices.Contains(events, test.event) {
					t.Errorf("events are %q, want %q", events, test.event)
				}
				if !strings.HasPrefix(test.want, "Running") {
					return
				}
				r.wantNeverEnded(test.pod)
				r.restart(time.Minute) // what was to be started again is not for a second time
				r.after(5 * time.Minute)
				r.wantState(test.pod, test.want)
			})
		})
	}
}

// A container that is stopped to be started again does not restart all others, also if it exits then with a code for
// which its rules do that when it ends by itself.
func TestAStopForANewImageRestartsNoOthers(t *testing.T) {
	for _, policy := range []corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways} {
		t.Run(string(policy), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["a"] = plan{lingers: time.Second, stopCode: 42}
				pod := makePod("a b", restartsAllOn(42), first(func(c *corev1.Container) { c.RestartPolicy = &policy }))
				r.create(pod)
				r.after(5 * time.Second)
				r.wantState(pod, "Running a=ready b=ready")
				pod = pod.DeepCopy()
				image2(pod)
				r.update(pod)
				r.after(10 * time.Second)
				r.wantState(pod, "Running a=ready#1 b=ready")
			})
		})
	}
}

// A container that has ended by itself is not started again for a new image.
func TestANewImageOfAContainerThatHasEnded(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Second}
		pod := makePod("a b", never)
		r.create(pod)
		r.after(3 * time.Second)
		r.wantState(pod, "Running a=Completed/0 b=ready")
		pod = makePod("a b", never, image2)
		r.update(pod)
		r.after(10 * time.Second)
		r.wantState(pod, "Running a=Completed/0 b=ready")
	})
}

// A process that ends between the stop of a container and its start, or before the stop,
// leaves what the next one goes on with.
func TestARestartThatIsInterrupted(t *testing.T) {
	for call, down := range map[string]string{"CreateContainer a": "Running a=CreateContainerError", "StopContainer a 30": "Running a=ready"} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a", onFailure, probedForLife)
				r.runtime.exec = func(context.Context, string, []string) error { return nil }
				r.create(pod)
				r.runtime.did()
				heal := r.unwell()
				r.runtime.intercept(func(_ context.Context, did string) error {
					if did == call {
						return errors.New("killed before")
					}
					return nil
				})
				r.after(1500 * time.Millisecond)
				r.wantState(pod, down)
				r.end()
				r.runtime.intercept(nil)
				heal()
				r.runtime.did()
				r.begin()
				r.after(0)
				r.wantState(pod, "Running a=ready#1")
				calls := r.runtime.did()
				if want := []string{"StopContainer a 30", "CreateContainer a", "StartContainer a"}; !slices.Equal(calls, want[len(want)-len(calls):]) || len(calls) < 2 {
					t.Errorf("calls are %v", calls)
				}
				r.after(5 * time.Minute)
				r.wantState(pod, "Running a=ready#1")
				r.wantNeverEnded(pod)
			})
		})
	}
}

// The stop that failed or was interrupted goes on with the grace period that it began with: that of the probe, if it was for one.
func TestAKillThatIsInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		fails, killed, back bool // the probe fails; the process ends; the image is the one of before again
		grace               string
	}{
		"probe":                 {fails: true, grace: "7"},
		"probe, killed":         {fails: true, killed: true, grace: "7"},
		"image":                 {grace: "3600"},
		"image, killed":         {killed: true, grace: "3600"},
		"image, that of before": {back: true, grace: "3600"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a", onFailure, probedForLife, func(p *corev1.Pod) {
					p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
					p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = ptr.To[int64](7)
				})
				r.runtime.exec = func(context.Context, string, []string) error { return nil }
				r.create(pod)
				r.runtime.intercept(func(_ context.Context, did string) error {
					if strings.HasPrefix(did, "StopContainer") {
						return errors.New("killed before")
					}
					return nil
				})
				heal := func() {}
				if test.fails {
					heal = r.unwell()
				} else {
					changed := pod.DeepCopy()
					image2(changed)
					r.update(changed)
				}
				r.after(1500 * time.Millisecond)
				if test.killed {
					r.end()
				}
				r.runtime.intercept(nil)
				heal()
				r.runtime.did()
				if test.back {
					r.update(pod)
				}
				if test.killed {
					r.begin()
				}
				r.after(lastRetry)
				r.wantCalls("StopContainer a "+test.grace, "CreateContainer a", "StartContainer a")
			})
		})
	}
}

// A container is stopped also where it cannot be recorded that it is to be started again: what fills the disk may be it.
func TestARestartThatCannotBeRecorded(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", onFailure, probedForLife)
		r.runtime.exec = func(context.Context, string, []string) error { return nil }
		r.create(pod)
		r.runtime.did()
		blocked := r.checkpointFile(pod.UID) + unready
		if err := os.Mkdir(blocked, 0o700); err != nil {
			t.Fatal(err)
		}
		heal := r.unwell()
		r.runtime.intercept(func(_ context.Context, did string) error {
			if did == "StopContainer a 30" {
				heal()
			}
			return nil
		})
		r.after(time.Minute)
		r.wantCalls("StopContainer a 30", "CreateContainer a", "StartContainer a")
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		r.after(2 * lastRetry)
		r.wantCalls()
		r.wantState(pod, "Running a=ready#1")
	})
}

// A container whose state was unknown has not done its work, though it exits with 0 when it is stopped, and the runtime
// answers again: an init container runs again, or the pod has failed.
func TestAContainerOfUnknownStateHasNotDoneItsWork(t *testing.T) {
	for name, test := range map[string]struct {
		pod        *corev1.Pod
		want, then string // then: five minutes after a restart
	}{
		"init container":        {makePod("i a"), "Pending i=running#1 a=PodInitializing", "Pending i=running#1 a=PodInitializing"},
		"init container, Never": {makePod("i a", never), "Failed i=ContainerStatusUnknown/137 a=PodInitializing", "Failed i=ContainerStatusUnknown/137 a=PodInitializing"},
		"Never":                 {makePod("a", never), "Failed a=ContainerStatusUnknown/137", "Failed a=ContainerStatusUnknown/137"},
		"Never, with another":   {makePod("a b", never), "Running a=ContainerStatusUnknown/137 b=ready", "Failed a=ContainerStatusUnknown/137 b=Completed/0"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["b"] = plan{runs: time.Minute}
				r.create(test.pod)
				c := r.runtime.newest(strings.Fields(test.want)[1][:1])
				r.runtime.set(func() { c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN })
				r.runtime.intercept(func(_ context.Context, call string) error {
					if strings.HasPrefix(call, "StopContainer") {
						r.runtime.set(func() { c.State = runtimeapi.ContainerState_CONTAINER_RUNNING }) // it answers again
						r.runtime.intercept(nil)
					}
					return nil
				})
				r.after(5 * time.Second)
				r.wantState(test.pod, test.want)
				r.restart(time.Second)
				r.after(5 * time.Minute)
				r.wantState(test.pod, test.then)
			})
		})
	}
}

// A stop that has failed while the state of a container was unknown says nothing of how it ends later on, if the runtime
// has shown that it runs in between.
func TestAContainerOfUnknownStateThatCouldNotBeStopped(t *testing.T) {
	for name, test := range map[string]struct {
		exits      bool // before the next look
		want, then string
	}{
		"runs on":       {false, "Running a=ready", "Succeeded a=Completed/0"},
		"exits at once": {true, "Failed a=ContainerStatusUnknown/137", "Failed a=ContainerStatusUnknown/137"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["a"] = plan{runs: 10 * time.Minute}
				pod := makePod("a", never)
				r.create(pod)
				c := r.runtime.newest("a")
				r.runtime.set(func() { c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN })
				r.runtime.intercept(func(_ context.Context, call string) error {
					if !strings.HasPrefix(call, "StopContainer") {
						return nil
					}
					r.runtime.set(func() { c.State = runtimeapi.ContainerState_CONTAINER_RUNNING }) // it answers again
					r.runtime.intercept(nil)
					if test.exits {
						r.runtime.exit(c.Id, 0)
					}
					return errors.New("not yet")
				})
				r.after(5 * time.Minute)
				r.wantState(pod, test.want)
				r.after(6 * time.Minute)
				r.wantState(pod, test.then)
			})
		})
	}
}

// A pod that is to run once and loses its sandbox before all of it was started has failed: what has run does not run again.
func TestASandboxIsLostOfAPodThatRunsOnce(t *testing.T) {
	for name, running := range map[string]bool{"between two containers": false, "while an init container runs, which exits with 0": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				if !running {
					r.runtime.plans["i"] = plan{runs: time.Second}
				}
				pod := makePod("i a", never)
				r.runtime.intercept(func(_ context.Context, call string) error {
					if call == "CreateContainer a" {
						return errors.New("not yet")
					}
					return nil
				})
				r.create(pod)
				r.after(5 * time.Second)
				box := r.runtime.box()
				r.runtime.set(func() { r.runtime.boxes[box].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
				r.runtime.intercept(nil)
				r.runtime.did()
				r.after(10 * time.Second)
				r.wantState(pod, "Failed i=Completed/0 a=ContainerStatusUnknown/137")
				if s := r.status(pod); s.Reason != "SandboxLost" {
					t.Errorf("the reason is %q", s.Reason)
				}
				r.runtime.set(func() { r.runtime.boxes[box].State = runtimeapi.PodSandboxState_SANDBOX_READY }) // it may show that again
				r.after(5 * time.Minute)
				r.restart(time.Minute)
				r.after(5 * time.Minute)
				r.wantState(pod, "Failed i=Completed/0 a=ContainerStatusUnknown/137")
				for _, call := range r.runtime.did() {
					if strings.HasPrefix(call, "Start") || strings.HasPrefix(call, "Run") {
						t.Errorf("it was asked to %s", call)
					}
				}
			})
		})
	}
}

// A container that its own restart policy starts again gets another sandbox if the runtime has forgotten the pod's, whose policy is
// Never, and none if that is there and not ready.
func TestASandboxIsLostOfAPodThatRunsOnceAndAContainerThatDoesNot(t *testing.T) {
	for name, test := range map[string]struct {
		lose         func(r *rig)
		want, reason string
	}{
		"forgotten": {func(r *rig) { r.runtime.forget() }, "Running a=ready#1 b=ContainerStatusUnknown/137", ""},
		"not ready": {func(r *rig) { r.runtime.loseSandbox(r.runtime.box()) }, "Failed a=Error/137 b=Error/137", "SandboxLost"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a b", never, first(func(c *corev1.Container) { c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways) }))
				r.create(pod)
				test.lose(r)
				r.after(4 * time.Minute)
				r.wantState(pod, test.want)
				if s := r.status(pod); s.Reason != test.reason {
					t.Errorf("the reason is %q, want %q", s.Reason, test.reason)
				}
			})
		})
	}
}

// A pod that is to run once, and all of which runs, ends when its sandbox is not ready for a moment; how its containers end decides.
func TestASandboxIsNotReadyForAMoment(t *testing.T) {
	for name, test := range map[string]struct {
		code int32
		want string
	}{
		"they end well": {0, "Succeeded a=Completed/0 b=Completed/0"},
		"one does not":  {3, "Failed a=Completed/0 b=Error/3"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["b"] = plan{lingers: time.Second, stopCode: test.code}
				pod := makePod("a b", never)
				r.create(pod)
				box, did := r.runtime.box(), r.runtime.did()
				r.runtime.set(func() { r.runtime.boxes[box].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
				r.after(10 * time.Second)
				r.runtime.set(func() { r.runtime.boxes[box].State = runtimeapi.PodSandboxState_SANDBOX_READY })
				r.after(5 * time.Minute)
				r.wantState(pod, test.want)
				if s := r.status(pod); s.Reason != "" {
					t.Errorf("the reason is %q", s.Reason)
				}
				for _, call := range r.runtime.did() {
					if slices.Contains(did, call) {
						t.Errorf("it was asked again to %s", call)
					}
				}
			})
		})
	}
}
