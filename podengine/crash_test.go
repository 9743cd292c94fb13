package podengine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func errdefsIsInvalid(err error) bool { return errdefs.IsInvalidInput(err) }

func cpu(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

// starts records when a container is started.
func (r *rig) starts(call string) func() []time.Duration {
	var at []time.Duration
	begin := time.Now()
	r.runtime.set(func() {
		r.runtime.before = func(_ context.Context, did string) error {
			if did == call {
				at = append(at, time.Since(begin))
			}
			return nil
		}
	})
	return func() []time.Duration { return at }
}

func TestCrashLoopBackOff(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: 2 * time.Second, code: 1} }, func(r *rig) {
		starts := r.starts("StartContainer a")
		pod := makePod("a")
		r.create(pod)
		r.after(8 * time.Second) // the first restart is at once
		const held = "Warning BackOff {a}: Back-off restarting failed container a in pod p_ns(uid-of-a)"
		if n := r.events.count(held); n != 1 {
			t.Errorf("events are %v", r.events.drain())
		}
		for range 20 { // what wakes the worker often has it say no more
			r.nudge(pod.UID)
			r.after(100 * time.Millisecond)
		}
		if n := r.events.count(held); n != 1 {
			t.Errorf("%d events within two seconds, want 1", n)
		}
		r.after(30*time.Minute - 10*time.Second)
		if n := r.events.count(held); n < 12 || n > 30 {
			t.Errorf("%d events of 11 attempts, of which most wait for longer than a resync", n)
		}
		var pauses []time.Duration
		for i, at := range starts()[1:] {
			pauses = append(pauses, at-starts()[i]-2*time.Second)
		}
		want := []time.Duration{0, 10, 20, 40, 80, 160, 300, 300}
		for i := range want {
			want[i] *= time.Second
			if late := pauses[i] - want[i]; late < 0 || late > 1100*time.Millisecond {
				t.Errorf("pause %d was %v, want %v", i, pauses[i], want[i])
			}
		}
		waiting := r.status(pod).ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Reason != "CrashLoopBackOff" || waiting.Message != "back-off 5m0s restarting failed container=a pod=p_ns(uid-of-a)" {
			t.Errorf("waiting is %v", waiting)
		}
		if last := r.status(pod).ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 1 {
			t.Errorf("the last state is %v", last)
		}
		if n := len(r.runtime.containers); n > 2 {
			t.Errorf("%d containers are left, want the last two", n)
		}

		r.runtime.set(func() { r.runtime.plans["a"] = plan{runs: 11 * time.Minute, code: 1} })
		r.after(5*time.Minute + 11*time.Minute + 3*time.Second)
		begun := starts()
		if pause := begun[len(begun)-1] - begun[len(begun)-2] - 11*time.Minute; pause > 2*time.Second {
			t.Errorf("after it had run well for long it was down for %v", pause)
		}
	})
}

// What fails between two runs is not one more crash.
func TestAFailedStartIsNoCrash(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: 2 * time.Second, code: 1} }, func(r *rig) {
		pod := makePod("a", first(func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways }))
		r.create(pod)
		r.images.mu.Lock()
		r.images.pull = func(context.Context, string) error { return errors.New("the registry is down") }
		r.images.mu.Unlock()
		r.after(time.Minute)
		r.wantState(pod, "Running a=ImagePullBackOff")
		r.images.mu.Lock()
		r.images.pull = nil
		r.images.mu.Unlock()
		r.after(41 * time.Second)
		if c := r.runtime.newest("a"); c.Metadata.Attempt == 0 {
			t.Error("it was not started again")
		}
		waiting := r.status(pod).ContainerStatuses[0].State.Waiting
		if waiting != nil && waiting.Reason != "CrashLoopBackOff" {
			t.Errorf("waiting is %v", waiting)
		}
	})
}

func TestLivenessFailure(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.runtime.plans["a"] = plan{stopCode: 143, lingers: 3 * time.Second}
		r.runtime.exec = func(_ context.Context, _ string, command []string) error {
			if slices.Contains(command, "alive") {
				return exec.CodeExitError{Err: errors.New("no"), Code: 1}
			}
			return nil
		}
	}, func(r *rig) {
		pod := makePod("a", first(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("alive")}, PeriodSeconds: 1, FailureThreshold: 2,
				TerminationGracePeriodSeconds: new(int64)}
			*c.LivenessProbe.TerminationGracePeriodSeconds = 7
		}))
		r.create(pod)
		r.runtime.did()
		r.after(20 * time.Second)
		if n := r.events.count("Normal Killing {a}: Container a failed liveness probe, will be restarted"); n == 0 {
			t.Errorf("events are %v", r.events.drain())
		}
		if calls := r.runtime.did(); calls[0] != "StopContainer a 7" {
			t.Errorf("calls are %v", calls)
		}
		if c := r.runtime.newest("a"); c.Metadata.Attempt == 0 {
			t.Error("it was not started again")
		}
	})
}

// What the engine stops to start it again is held back as by a kubelet, which does both in one step: not for the first
// end, and later not if the end before is longer ago than the back-off.
func TestCrashLoopBackOffOfWhatIsStopped(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure} {
		t.Run(string(policy), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.unwell()
				var stopped time.Time
				var pauses []time.Duration
				r.runtime.intercept(func(_ context.Context, call string) error {
					switch {
					case strings.HasPrefix(call, "StopContainer a"):
						stopped = time.Now()
					case call == "StartContainer a" && !stopped.IsZero():
						pauses = append(pauses, time.Since(stopped))
					}
					return nil
				})
				r.create(makePod("a", probedForLife, first(func(c *corev1.Container) {
					c.LivenessProbe.InitialDelaySeconds, c.LivenessProbe.PeriodSeconds = 60, 60
				}), func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }))
				r.after(45 * time.Minute)
				want := []time.Duration{0, 0, 0, 0, 0, 80, 160, 300, 0, 300, 0}
				for i, seconds := range want {
					if least := seconds * time.Second; i >= len(pauses) || pauses[i] < least || pauses[i] > least+2*time.Second {
						t.Errorf("the pauses were %v, want %d s", pauses, want)
						return
					}
				}
			})
		})
	}
}

// Another image, or other resources, begin the back-off afresh.
func TestAChangeBeginsTheBackOffAfresh(t *testing.T) {
	for name, change := range map[string]func(*corev1.Container){
		"resources": func(c *corev1.Container) { c.Resources.Limits = memory("2Gi") },
		"image":     func(c *corev1.Container) { c.Image = "image:2" },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, func(r *rig) {
				r.runtime.plans["a"] = plan{runs: 2 * time.Second, code: 137}
			}, func(r *rig) {
				pod := makePod("a", first(func(c *corev1.Container) { c.Resources.Limits = memory("1Gi") }))
				r.create(pod)
				r.after(15 * time.Minute)
				if waiting := r.status(pod).ContainerStatuses[0].State.Waiting; waiting == nil || !strings.Contains(waiting.Message, "back-off 5m0s") {
					t.Fatalf("waiting is %v", waiting)
				}
				starts := r.starts("StartContainer a")
				changed := pod.DeepCopy()
				change(&changed.Spec.Containers[0])
				r.update(changed)
				r.after(time.Minute)
				want := []time.Duration{0, 12 * time.Second, 34 * time.Second}
				got := starts()
				for i := range want {
					if i >= len(got) || got[i] < want[i] || got[i] > want[i]+4*time.Second {
						t.Fatalf("it was started at %v, want about %v", got, want)
					}
				}
			})
		})
	}
}

func TestANewImageIsNotHeldBack(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: time.Second, code: 1} }, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.after(time.Minute)
		r.wantState(pod, "Running a=CrashLoopBackOff#3")
		r.runtime.set(func() { delete(r.runtime.plans, "a") })
		pod = makePod("a", first(func(c *corev1.Container) { c.Image = "image:2" }))
		r.update(pod)
		r.wantState(pod, "Running a=ready#4")
	})
}
