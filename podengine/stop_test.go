package podengine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestDeletion(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: 5 * time.Second, stopCode: 143}
		r.runtime.plans["s1"] = plan{lingers: 2 * time.Second}
		pod := makePod("s1 s2 a b")
		r.create(pod)
		r.runtime.did()
		r.events.drain()
		r.delete(pod, 30)
		r.wantState(pod, "Running s1=ready s2=ready a=ready b=ready")
		r.after(4 * time.Second)
		if _, err := r.GetPod(r.ctx, "ns", "p"); err != nil {
			t.Errorf("it is gone before it has ended: %v", err)
		}
		r.after(10 * time.Second)
		r.wantGone(pod)
		r.wantState(pod, "Failed s1=Completed/0 s2=Completed/0 a=Error/143 b=Completed/0")
		calls := r.runtime.did()
		slices.Sort(calls[:2]) // side by side
		if want := []string{"StopContainer a 30", "StopContainer b 30", "StopContainer s2 25", "StopContainer s1 25", "StopPodSandbox"}; !slices.Equal(calls[:5], want) {
			t.Errorf("the runtime was asked to %v, want %v first", calls, want)
		}
		events := r.events.drain()
		slices.Sort(events)
		if want := []string{
			"Normal Killing {a}: Stopping container a", "Normal Killing {b}: Stopping container b",
			"Normal Killing {s1}: Stopping container s1", "Normal Killing {s2}: Stopping container s2",
		}; !slices.Equal(events, want) {
			t.Errorf("events are %v", events)
		}
		if err := r.DeletePod(r.ctx, pod); !errdefs.IsNotFound(err) {
			t.Errorf("another deletion: %v, want NotFound", err)
		}
	})
}

// A pod may go while its deletion is being kept: that is what was asked for.
func TestDeletionOvertakenByTheEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		w := r.worker(pod.UID)
		r.delete(pod, 0)
		r.wantGone(pod)
		if err := w.delete(time.Now()); err != nil {
			t.Error(err)
		}
		r.wantGone(pod)
	})
}

func TestAShorterDeletionCounts(t *testing.T) {
	for name, seconds := range map[string]int64{"shorter": 3, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runtime.plans["a"] = plan{lingers: time.Hour}
				pod := makePod("a")
				r.create(pod)
				r.delete(pod, 600)
				r.after(time.Minute)
				r.delete(pod, 300) // no earlier
				r.delete(pod, seconds)
				r.after(time.Duration(seconds)*time.Second + time.Millisecond)
				r.wantGone(pod)
				if n := r.events.count("Killing"); n != 1 {
					t.Errorf("it was reported %d times", n)
				}
			})
		})
	}
}

func TestPreStopUsesTheGracePeriod(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.countHooks(10 * time.Second)
			pod := makePod("a", withPreStop)
			r.create(pod)
			r.runtime.did()
			r.delete(pod, 30)
			r.after(11 * time.Second)
			r.wantGone(pod)
			r.wantCalls("StopContainer a 20", "StopPodSandbox", "StopPodSandbox", "RemoveContainer a", "RemovePodSandbox")
		})
	})
	t.Run("too long", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.countHooks(time.Hour)
			pod := makePod("a", withPreStop)
			r.create(pod)
			r.runtime.did()
			r.delete(pod, 30)
			r.after(31 * time.Second)
			r.wantCalls("StopContainer a 2", "StopPodSandbox", "StopPodSandbox", "RemoveContainer a", "RemovePodSandbox")
			if events := r.events.drain(); !slices.Contains(events, "Warning FailedPreStopHook {a}: PreStopHook failed") {
				t.Errorf("events are %q", events)
			}
		})
	})
	t.Run("no grace", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			began := r.countHooks(time.Hour)
			pod := makePod("a", withPreStop)
			r.create(pod)
			r.runtime.did()
			r.delete(pod, 0)
			r.after(time.Millisecond)
			r.wantGone(pod)
			if calls := r.runtime.did(); calls[0] != "StopContainer a 2" || began() != 0 {
				t.Errorf("calls are %v, the hook ran %d times", calls, began())
			}
		})
	})
	t.Run("once, though the stop fails", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			began := r.countHooks(time.Second)
			pod := makePod("a", withPreStop)
			r.create(pod)
			r.runtime.intercept(func(_ context.Context, call string) error {
				if strings.HasPrefix(call, "Stop") {
					return errors.New("not now")
				}
				return nil
			})
			r.delete(pod, 30)
			r.after(time.Minute)
			if n := len(r.runtime.did()); n > 20 {
				t.Errorf("it was tried without a pause: %d calls in a minute", n)
			}
			r.runtime.set(func() { r.runtime.before = nil })
			r.after(11 * time.Second)
			r.wantGone(pod)
			if n := began(); n != 1 {
				t.Errorf("the hook ran %d times", n)
			}
		})
	})
}

// A deletion that ends the pod no sooner than it is ending anyway leaves the preStop hook
// alone.
func TestDeletionDoesNotRestartAPreStopHook(t *testing.T) {
	inBubble(t, func(r *rig) {
		began := r.countHooks(50 * time.Second)
		pod := makePod("a", never, withPreStop, func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds, p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60), ptr.To[int64](60)
		})
		r.create(pod)
		r.after(80 * time.Second)
		r.delete(pod, 60)
		r.after(29 * time.Second)
		if n := began(); n != 1 {
			t.Errorf("the hook began %d times", n)
		}
		r.wantState(pod, "Running a=ready")
		r.after(time.Second)
		r.wantGone(pod)
	})
}

// A preStop hook that runs is not started again when its container is to end for another
// reason, or sooner.
func TestPreStopHooksRunOnce(t *testing.T) {
	grace := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60) }
	kill := func(r *rig, pod *corev1.Pod) {
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Image = "image:2"
		r.update(pod)
	}
	end := func(r *rig, pod *corev1.Pod) { r.delete(pod, 60) }
	for name, test := range map[string]struct {
		begin func(*rig, *corev1.Pod)
		grace int64         // of the deletion 10 s later
		takes time.Duration // from that on
		stop  string
		fails int
	}{
		"a kill, a deletion":          {kill, 60, 20 * time.Second, "StopContainer a 40", 0},
		"a kill, a shorter deletion":  {kill, 5, 5 * time.Second, "StopContainer a 2", 1},
		"a kill, a deletion at once":  {kill, 0, 0, "StopContainer a 2", 1},
		"a deletion, one like it":     {end, 60, 20 * time.Second, "StopContainer a 30", 0},
		"a deletion, a shorter one":   {end, 25, 20 * time.Second, "StopContainer a 5", 0},
		"a deletion, a much shorter":  {end, 5, 5 * time.Second, "StopContainer a 2", 1},
		"a deletion, and one at once": {end, 0, 0, "StopContainer a 2", 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				began := r.countHooks(30 * time.Second)
				pod := makePod("a", withPreStop, grace)
				r.create(pod)
				r.runtime.did()
				test.begin(r, pod)
				r.after(10 * time.Second)
				r.delete(pod, test.grace)
				r.after(test.takes)
				r.wantGone(pod)
				if calls := r.runtime.did(); slices.Index(calls, test.stop) != 0 {
					t.Errorf("calls are %q, want %q first", calls, test.stop)
				}
				if n, failed := began(), r.events.count("FailedPreStopHook"); n != 1 || failed != test.fails {
					t.Errorf("the hook began %d times, and failed %d times", n, failed)
				}
			})
		})
	}
}

// A preStop hook that runs has as long as its container, if that gets longer.
func TestPreStopHookOfALongerGracePeriod(t *testing.T) {
	inBubble(t, func(r *rig) {
		began := r.countHooks(100 * time.Second)
		pod := makePod("a", withPreStop)
		r.create(pod)
		r.runtime.did()
		killed := pod.DeepCopy()
		killed.Spec.Containers[0].Image = "image:2"
		r.update(killed)
		r.after(10 * time.Second)
		r.delete(pod, 300)
		r.after(90 * time.Second)
		r.wantGone(pod)
		if calls, n, failed := r.runtime.did(), began(), r.events.count("FailedPreStopHook"); slices.Index(calls, "StopContainer a 210") != 0 || n != 1 || failed != 0 {
			t.Errorf("calls are %q; the hook began %d times, and failed %d times", calls, n, failed)
		}
	})
}

// A preStop hook ends with the engine, and is run again by the next.
func TestPreStopHooksEndWithTheEngine(t *testing.T) {
	inBubble(t, func(r *rig) {
		began := r.countHooks(20 * time.Second)
		pod := makePod("a", withPreStop)
		r.create(pod)
		r.delete(pod, 60)
		r.after(10 * time.Second)
		r.restart(time.Second)
		r.after(20 * time.Second)
		r.wantGone(pod)
		if n, failed := began(), r.events.count("FailedPreStopHook"); n != 2 || failed != 0 {
			t.Errorf("the hook began %d times, and failed %d times", n, failed)
		}
	})
}

// withPreStop gives the first container of a pod a preStop hook.
func withPreStop(pod *corev1.Pod) {
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: command("hook")}}
}

// countHooks has all commands take so long, and returns how many were begun.
func (r *rig) countHooks(takes time.Duration) (began func() int) {
	var mu sync.Mutex
	n := 0
	r.runtime.exec = func(ctx context.Context, _ string, _ []string) error {
		mu.Lock()
		n++
		mu.Unlock()
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// forever waits until it is given up.
func forever(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestDeletionInterrupts(t *testing.T) {
	t.Run("a pull", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.images.pull = func(ctx context.Context, _ string) error { return forever(ctx) }
			pod := makePod("a")
			r.create(pod)
			r.after(time.Minute)
			r.delete(pod, 30)
			r.after(time.Millisecond)
			r.wantGone(pod)
			r.wantState(pod, "Failed a=ContainerStatusUnknown/137")
		})
	})
	t.Run("a postStart hook", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.runtime.exec = func(ctx context.Context, _ string, _ []string) error { return forever(ctx) }
			pod := makePod("a", first(func(c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: command("hook")}}
			}))
			r.create(pod)
			r.after(time.Minute)
			r.delete(pod, 30)
			r.after(time.Millisecond)
			r.wantGone(pod)
			if n := r.events.count("FailedPostStartHook"); n != 0 {
				t.Errorf("events are %v", r.events.drain())
			}
		})
	})
	t.Run("a back-off", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.runtime.plans["a"] = plan{runs: time.Second, code: 1}
			pod := makePod("a")
			r.create(pod)
			r.after(6 * time.Second)
			r.wantState(pod, "Running a=CrashLoopBackOff#1")
			r.delete(pod, 30)
			r.after(time.Millisecond)
			r.wantGone(pod)
			r.wantState(pod, "Failed a=Error/1#1")
		})
	})
	t.Run("a creation", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.runtime.intercept(func(ctx context.Context, call string) error {
				if call == "CreateContainer a" {
					return forever(ctx)
				}
				return nil
			})
			pod := makePod("a")
			r.create(pod)
			r.delete(pod, 30)
			r.after(time.Millisecond)
			r.wantGone(pod)
			r.wantState(pod, "Failed a=ContainerStatusUnknown/137")
		})
	})
}

func TestActiveDeadline(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: 10 * time.Second}
		pod := makePod("a", never, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64); *p.Spec.ActiveDeadlineSeconds = 60 })
		r.create(pod)
		r.after(59 * time.Second)
		r.wantState(pod, "Running a=ready")
		r.after(4 * time.Second)
		r.end()
		r.runtime.exit(r.runtime.newest("a").Id, 0) // it ends well meanwhile
		r.begin()
		r.after(2 * time.Second)
		s := r.status(pod)
		if s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" || s.Message != "Pod was active on the node longer than the specified deadline" {
			t.Errorf("%s: %s: %s", s.Phase, s.Reason, s.Message)
		}
		if s.PodIP != "10.0.0.1" {
			t.Errorf("the pod was at %q", s.PodIP)
		}
		r.delete(pod, 30)
		r.after(time.Millisecond)
		r.wantGone(pod)
	})
}

// The preStop hooks of all containers run at once, as in a kubelet; only the stops
// are in order, and each container is given two seconds at least.
func TestSidecarsWithPreStopHooks(t *testing.T) {
	hooked := func(pod *corev1.Pod) {
		eachContainer(pod, func(_ kind, c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: command("hook")}}
		})
	}
	for name, test := range map[string]struct {
		hook, lingers time.Duration
		dies          time.Duration // of the container a
		grace         int64
		calls         []string
		took          time.Duration
	}{
		"in time": {5 * time.Second, 4 * time.Second, 0, 30,
			[]string{"StopContainer a 25", "StopContainer s2 21", "StopContainer s1 17", "StopPodSandbox"}, 17 * time.Second},
		"the grace period ends while sidecars wait": {5 * time.Second, time.Minute, 0, 10,
			[]string{"StopContainer a 5", "StopContainer s1 2", "StopContainer s2 2", "StopPodSandbox"}, 12 * time.Second},
		"a kill that takes a moment": {5500 * time.Millisecond, time.Minute, time.Second / 2, 10,
			[]string{"StopContainer a 5", "StopContainer s1 2", "StopContainer s2 2", "StopPodSandbox"}, 13 * time.Second},
		"a kill that hangs": {5 * time.Second, time.Minute, time.Second * 5 / 2, 10,
			[]string{"StopContainer a 5", "StopContainer s1 2", "StopContainer s2 2", "StopPodSandbox"}, 14 * time.Second},
		"hooks that hang": {time.Hour, 0, 0, 10,
			[]string{"StopContainer a 2", "StopContainer s1 2", "StopContainer s2 2", "StopPodSandbox"}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				hooks := make(chan time.Time, 10)
				for _, c := range []string{"s1", "s2", "a"} {
					r.runtime.plans[c] = plan{lingers: test.lingers}
				}
				r.runtime.plans["a"] = plan{lingers: test.lingers, dies: test.dies}
				r.runtime.exec = func(ctx context.Context, _ string, _ []string) error {
					hooks <- time.Now()
					select {
					case <-time.After(test.hook):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				pod := makePod("s1 s2 a", hooked)
				r.create(pod)
				r.runtime.did()
				begin := time.Now()
				r.delete(pod, test.grace)
				r.after(test.took - time.Millisecond)
				if r.worker(pod.UID) == nil {
					t.Error("it has ended too early")
				}
				r.after(2 * time.Millisecond)
				r.wantGone(pod)
				calls := r.runtime.did()[:4]
				if test.calls[1] > test.calls[2] { // in order
					if !slices.Equal(calls, test.calls) {
						t.Errorf("calls are %v, want %v", calls, test.calls)
					}
				} else if slices.Sort(calls); !slices.Equal(calls, test.calls) {
					t.Errorf("calls are %v, want %v in any order", calls, test.calls)
				}
				for range 3 {
					if at := <-hooks; !at.Equal(begin) {
						t.Errorf("a hook began %v after the deletion", at.Sub(begin))
					}
				}
			})
		})
	}
}

// The kill that a controller asks for a second after the grace period does not take from
// sidecars what they are given then.
func TestKillWhileSidecarsEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: time.Hour}
		r.runtime.plans["s"] = plan{lingers: 1900 * time.Millisecond}
		pod := makePod("s a")
		r.create(pod)
		r.runtime.did()
		r.delete(pod, 10)
		r.after(11 * time.Second)
		r.delete(pod, 0)
		r.after(890 * time.Millisecond)
		r.wantCalls("StopContainer a 10", "StopContainer s 2")
		r.after(20 * time.Millisecond)
		r.wantGone(pod)
		r.wantState(pod, "Failed s=Completed/0 a=Error/137")
	})
}

// Sidecars are not stopped before a container that could not be stopped yet.
func TestSidecarsWaitForWhatCannotBeStopped(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("s a")
		r.create(pod)
		r.runtime.did()
		r.runtime.intercept(func(_ context.Context, call string) error {
			if strings.HasPrefix(call, "StopContainer a") {
				return errors.New("not now")
			}
			return nil
		})
		r.delete(pod, 60)
		r.after(30 * time.Second)
		for _, call := range r.runtime.did() {
			if strings.HasPrefix(call, "StopContainer s") {
				t.Errorf("the runtime was asked to %s", call)
			}
		}
		r.runtime.intercept(nil)
		r.after(11 * time.Second)
		r.wantGone(pod)
	})
}

// A pod that is to end and that the runtime cannot stop is warned of, once as long as that holds; not
// one whose end was only hastened.
func TestPodsThatCannotBeStopped(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.events.drain()
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "StopContainer") {
				return forever(ctx)
			}
			return nil
		})
		r.delete(pod, 60)
		r.refuseStops()
		r.delete(pod, 30)
		r.after(time.Minute)
		r.wantEvents(
			"Normal Killing {a}: Stopping container a",
			"Warning FailedKillPod: error killing pod: cannot stop container a: not now",
		)
		r.runtime.intercept(nil)
		r.after(11 * time.Second)
		r.wantGone(pod)
	})
}

// It is also of a pod that has ended by itself, and there is one for as long as that holds, also if several containers
// cannot be stopped.
func TestPodsThatHaveEndedAndCannotBeStopped(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: time.Minute}
		r.create(makePod("s1 s2 a", never))
		r.after(10 * time.Second)
		r.events.drain()
		r.refuseStops()
		r.after(5 * time.Minute)
		if n := r.events.count("FailedKillPod"); n != 1 {
			t.Errorf("%d events FailedKillPod: %q", n, r.events.drain())
		}
	})
	inBubble(t, func(r *rig) {
		pod := makePod("a b c")
		r.create(pod)
		r.refuseStops()
		r.delete(pod, 30)
		r.after(5 * time.Minute)
		if n := r.events.count("FailedKillPod"); n != 1 {
			t.Errorf("%d events FailedKillPod of three containers: %q", n, r.events.drain())
		}
	})
}

func (r *rig) refuseStops() {
	r.runtime.intercept(func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "StopContainer") {
			return errors.New("not now")
		}
		return nil
	})
}
