package probe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// rig is a Manager with a scripted Runner in a synctest bubble. It writes down
// what happens, with the second since its start.
type rig struct {
	*Manager
	t     *testing.T
	begin time.Time

	mu     sync.Mutex
	answer map[Kind]func() (Outcome, string, error)
	made   map[Kind][]string // seconds
	events []string
	notes  []string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, begin: time.Now(), answer: map[Kind]func() (Outcome, string, error){}, made: map[Kind][]string{}}
	r.Manager = NewManager(ManagerOptions{
		Runner: r,
		Notify: func(uid types.UID) { r.record(&r.notes, string(uid)) },
		Event: func(pod *corev1.Pod, container, eventType, reason, message string) {
			r.record(&r.events, fmt.Sprintf("%s/%s %s %s %s", pod.Name, container, eventType, reason, message))
		},
	})
	r.jitter = func(period time.Duration) time.Duration { return period / 2 }
	t.Cleanup(r.Close)
	return r
}

func (r *rig) second() string { return fmt.Sprint(time.Since(r.begin).Seconds()) }

func (r *rig) record(list *[]string, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, r.second()+" "+text)
}

// Probe answers success, unless the script says otherwise.
func (r *rig) Probe(_ context.Context, target Target, probe *corev1.Probe) (Outcome, string, error) {
	for _, kind := range []Kind{Startup, Liveness, Readiness} {
		if kind.of(target.Container) == probe {
			r.mu.Lock()
			r.made[kind] = append(r.made[kind], r.second())
			answer := r.answer[kind]
			r.mu.Unlock()
			if answer != nil {
				return answer()
			}
		}
	}
	return Success, "", nil
}

func (r *rig) answers(kind Kind, outcome Outcome, output string) {
	r.does(kind, func() (Outcome, string, error) { return outcome, output, nil })
}

func (r *rig) does(kind Kind, answer func() (Outcome, string, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer[kind] = answer
}

// at goes on to a second, a moment after what happens then.
func (r *rig) at(second float64) {
	time.Sleep(time.Until(r.begin.Add(time.Duration(second*float64(time.Second)) + time.Millisecond)))
	synctest.Wait()
}

func (r *rig) probed(kind Kind, want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.made[kind]) != fmt.Sprint(want) {
		r.t.Errorf("%s probes at %v, want %v", kind, r.made[kind], want)
	}
	r.made[kind] = nil
}

func (r *rig) wantRecorded(list *[]string, want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(*list) != fmt.Sprint(want) {
		r.t.Errorf("got %q, want %q", *list, want)
	}
	*list = nil
}

func (r *rig) result(want Result) {
	r.t.Helper()
	got := r.Results("uid")["c"]
	want.ContainerID = got.ContainerID
	if got != want {
		r.t.Errorf("at %s: %+v, want %+v", r.second(), got, want)
	}
}

func podWith(startup, liveness, readiness *corev1.Probe) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", StartupProbe: startup, LivenessProbe: liveness, ReadinessProbe: readiness,
		}}},
	}
}

// run sets the pod with its container, which has just started.
func (r *rig) run(pod *corev1.Pod, id string) {
	r.Set(Pod{Pod: pod, IP: "10.0.0.1", Containers: map[string]Container{"c": {ID: id, StartedAt: time.Now()}}})
}

func every(period, initial, success, failure int32) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: period, InitialDelaySeconds: initial, SuccessThreshold: success, FailureThreshold: failure}
}

func bubble(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) { test(newRig(t)) })
}

func TestWithoutProbes(t *testing.T) {
	bubble(t, func(r *rig) {
		pod := podWith(nil, nil, nil)
		r.run(pod, "1")
		r.result(Result{Started: true, Ready: true})
		r.Set(Pod{Pod: pod}) // it has ended
		if got := r.Results("uid"); got == nil || len(got) != 0 {
			t.Error(got)
		}
		r.Forget("uid")
		if got := r.Results("uid"); got != nil {
			t.Error(got)
		}
	})
}

func TestReadinessThresholds(t *testing.T) {
	bubble(t, func(r *rig) {
		r.run(podWith(nil, nil, every(2, 3, 2, 2)), "1")
		r.result(Result{Started: true})
		r.at(3) // the first success of two
		r.result(Result{Started: true})
		r.at(5)
		r.result(Result{Started: true, Ready: true})
		r.wantRecorded(&r.notes, "5 uid")
		r.answers(Readiness, Failure, "sick")
		r.at(7) // the first failure of two
		r.result(Result{Started: true, Ready: true})
		r.answers(Readiness, Success, "")
		r.at(9)
		r.answers(Readiness, Failure, "sick")
		r.at(11)
		r.wantRecorded(&r.notes)
		r.at(13)
		r.result(Result{Started: true, Message: "sick"})
		r.wantRecorded(&r.notes, "13 uid")
		r.at(15)
		r.wantRecorded(&r.notes) // nothing new
		r.probed(Readiness, "3", "5", "7", "9", "11", "13", "15")
		r.wantRecorded(&r.events, "7 p/c Warning Unhealthy Readiness probe failed: sick", "11 p/c Warning Unhealthy Readiness probe failed: sick",
			"13 p/c Warning Unhealthy Readiness probe failed: sick", "15 p/c Warning Unhealthy Readiness probe failed: sick")
	})
}

func TestDefaults(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(Liveness, Failure, "dead")
		r.run(podWith(nil, every(0, 0, 0, 0), nil), "1")
		r.at(19)
		r.result(Result{Started: true, Ready: true})
		r.at(100)
		r.result(Result{Started: true, Ready: true, LivenessFailed: true, Message: "dead"})
		r.probed(Liveness, "0", "10", "20")
	})
}

func TestLivenessHoldsUntilTheNextContainer(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(Liveness, Failure, "dead")
		pod := podWith(nil, every(1, 0, 1, 2), every(5, 1, 1, 1))
		r.run(pod, "1")
		r.at(4)
		r.probed(Liveness, "0", "1")
		r.result(Result{Started: true, Ready: true, LivenessFailed: true, Message: "dead"})
		if got := r.Results("uid")["c"].Failed("c"); got != "Container c failed liveness probe" {
			t.Error(got)
		}
		r.wantRecorded(&r.notes, "1 uid", "1 uid") // ready, failed
		r.run(pod, "1")                            // the same container: nothing changes
		r.at(6)
		r.probed(Liveness)
		r.probed(Readiness, "1", "6")

		r.run(pod, "2")
		r.at(6.5)
		r.result(Result{Started: true}) // one failure only: the count started again
		r.answers(Liveness, Success, "")
		r.at(10)
		r.result(Result{Started: true, Ready: true})
	})
}

func TestStartupGatesTheOthers(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(Startup, Failure, "not yet")
		r.run(podWith(every(2, 1, 1, 10), every(10, 0, 1, 1), every(10, 20, 1, 1)), "1")
		r.at(4)
		r.probed(Startup, "1", "3")
		r.result(Result{})
		r.answers(Startup, Success, "")
		r.at(6)
		r.result(Result{Started: true})
		r.wantRecorded(&r.notes, "5 uid")
		r.at(30)
		r.probed(Startup, "5")
		r.probed(Liveness, "5", "15", "25")
		r.probed(Readiness, "20", "30") // its delay counts from the container's start
		r.result(Result{Started: true, Ready: true})
	})
}

func TestStartupReadyWithoutReadinessProbe(t *testing.T) {
	bubble(t, func(r *rig) {
		r.run(podWith(every(1, 1, 1, 1), nil, nil), "1")
		r.at(0)
		r.result(Result{})
		r.at(1)
		r.result(Result{Started: true, Ready: true})
	})
}

func TestStartupFails(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(Startup, Failure, "never")
		r.run(podWith(every(1, 0, 1, 3), nil, every(1, 0, 1, 1)), "1")
		r.at(10)
		r.probed(Startup, "0", "1", "2")
		r.probed(Readiness)
		r.result(Result{StartupFailed: true, Message: "never"})
		if got := r.Results("uid")["c"].Failed("c"); got != "Container c failed startup probe" {
			t.Error(got)
		}
	})
}

func TestTerminating(t *testing.T) {
	for name, stop := range map[string]func(p *Pod){
		"terminating": func(p *Pod) { p.Terminating = true },
		"deleted":     func(p *Pod) { p.Pod = p.Pod.DeepCopy(); p.Pod.DeletionTimestamp = ptr.To(metav1.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				pod := Pod{Pod: podWith(nil, every(1, 0, 1, 1), every(1, 0, 1, 1)), Containers: map[string]Container{"c": {ID: "1", StartedAt: time.Now()}}}
				r.Set(pod)
				r.at(1)
				stop(&pod)
				r.Set(pod)
				r.answers(Liveness, Failure, "")
				r.answers(Readiness, Failure, "gone")
				r.at(3)
				r.probed(Liveness, "0", "1")
				r.probed(Readiness, "0", "1", "2", "3")
				r.result(Result{Started: true, Message: "gone"})
			})
		})
	}
}

func TestErrorsDoNotCount(t *testing.T) {
	bubble(t, func(r *rig) {
		r.does(Liveness, func() (Outcome, string, error) { return Unknown, "", errors.New("no runtime") })
		r.run(podWith(nil, every(1, 0, 1, 1), nil), "1")
		r.at(1)
		r.result(Result{Started: true, Ready: true})
		r.wantRecorded(&r.events, "0 p/c Warning Unhealthy Liveness probe errored and resulted in unknown state: no runtime",
			"1 p/c Warning Unhealthy Liveness probe errored and resulted in unknown state: no runtime")
	})
}

func TestWarningIsASuccess(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(Readiness, Warning, "odd")
		r.run(podWith(nil, nil, every(1, 0, 1, 1)), "1")
		r.at(0)
		r.result(Result{Started: true, Ready: true})
		r.wantRecorded(&r.events, "0 p/c Warning ProbeWarning Readiness probe warning: odd")
	})
}

// A probe that takes longer than its period is made again at once, and then in
// time; others are made meanwhile.
func TestSlowProbe(t *testing.T) {
	bubble(t, func(r *rig) {
		slow := true
		r.does(Readiness, func() (Outcome, string, error) {
			if slow {
				time.Sleep(5 * time.Second)
			}
			slow = false
			return Success, "", nil
		})
		r.run(podWith(nil, every(2, 0, 1, 1), every(2, 0, 1, 1)), "1")
		r.at(8)
		r.probed(Liveness, "0", "2", "4", "6", "8")
		r.probed(Readiness, "0", "5", "7")
	})
}

// The outcome of a probe that was being made when its container was replaced
// says nothing of the new one.
func TestLateOutcome(t *testing.T) {
	bubble(t, func(r *rig) {
		r.does(Liveness, func() (Outcome, string, error) {
			time.Sleep(time.Second)
			return Failure, "late", nil
		})
		pod := podWith(nil, every(10, 0, 1, 1), nil)
		r.run(pod, "1")
		r.at(0.5)
		r.answers(Liveness, Success, "")
		r.run(pod, "2")
		r.at(2)
		r.result(Result{Started: true, Ready: true})
		r.wantRecorded(&r.events)
		if got := r.Results("uid")["c"].ContainerID; got != "2" {
			t.Error(got)
		}
	})
}

func TestProbesFollowTheContainer(t *testing.T) {
	bubble(t, func(r *rig) {
		pod := podWith(nil, every(1, 0, 1, 1), nil)
		r.Set(Pod{Pod: pod}) // nothing runs yet
		r.at(3)
		r.probed(Liveness)
		r.run(pod, "1")
		r.at(3.5)
		r.probed(Liveness, "3.001")
		r.Set(Pod{Pod: pod}) // it has ended
		r.at(6)
		r.probed(Liveness)
		r.run(pod, "2")
		r.at(6.5)
		r.probed(Liveness, "6.001")
		r.Forget("uid")
		r.at(10)
		r.probed(Liveness)
	})
}

func TestSidecarsAreProbed(t *testing.T) {
	bubble(t, func(r *rig) {
		pod := podWith(nil, nil, nil)
		pod.Spec.InitContainers = []corev1.Container{
			{Name: "init", ReadinessProbe: every(1, 0, 1, 1)},
			{Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), ReadinessProbe: every(1, 0, 1, 1)},
		}
		now := Container{ID: "1", StartedAt: time.Now()}
		r.Set(Pod{Pod: pod, Containers: map[string]Container{"init": now, "sidecar": now}})
		r.at(1)
		want := map[string]Result{"sidecar": {ContainerID: "1", Started: true, Ready: true}}
		if got := r.Results("uid"); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}
	})
}

// After a restart of the process what was known goes on, and probes are spread
// over their first period.
func TestAfterARestart(t *testing.T) {
	bubble(t, func(r *rig) {
		pod := podWith(every(10, 0, 1, 1), every(10, 0, 1, 1), every(4, 0, 1, 1))
		before := Container{ID: "1", StartedAt: time.Now().Add(-time.Hour), Started: true, Ready: true}
		r.Set(Pod{Pod: pod, Containers: map[string]Container{"c": before}})
		r.result(Result{Started: true, Ready: true})
		r.at(7)
		r.probed(Startup)
		r.probed(Liveness, "5")
		r.probed(Readiness, "2", "6")
		r.wantRecorded(&r.notes)
	})
}

// A container that starts while the process is young is not held up.
func TestNoJitterForNewContainers(t *testing.T) {
	bubble(t, func(r *rig) {
		r.run(podWith(nil, every(10, 2, 1, 1), nil), "1")
		r.at(3)
		r.probed(Liveness, "2")
	})
}

func TestClockOfTheRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		skew  time.Duration
		first string
	}{
		"ahead":        {time.Hour, "3"},
		"long ago":     {-time.Hour, "0"},
		"a moment ago": {-time.Second, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.Manager.started = r.begin.Add(-2 * time.Hour)
				pod := podWith(nil, every(60, 3, 1, 1), nil)
				r.Set(Pod{Pod: pod, Containers: map[string]Container{"c": {ID: "1", StartedAt: time.Now().Add(test.skew)}}})
				r.at(10)
				r.probed(Liveness, test.first)
			})
		})
	}
}

// Close interrupts probes, waits for them, and nothing follows.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probing sync.WaitGroup
		probing.Add(1)
		m := NewManager(ManagerOptions{
			Runner: runnerFunc(func(ctx context.Context) (Outcome, string, error) {
				probing.Done()
				<-ctx.Done()
				time.Sleep(time.Second) // slow to end
				return Failure, "", nil
			}),
			Event:  func(*corev1.Pod, string, string, string, string) { t.Error("an event") },
			Notify: func(types.UID) { t.Error("a notification") },
		})
		pod := Pod{Pod: podWith(nil, every(1, 0, 1, 1), nil), Containers: map[string]Container{"c": {ID: "1", StartedAt: time.Now()}}}
		m.Set(pod)
		probing.Wait()
		begin := time.Now()
		m.Close()
		if time.Since(begin) != time.Second {
			t.Error("it did not wait")
		}
		m.Set(pod)
		if m.Results("uid") != nil {
			t.Error("it goes on")
		}
	})
}

type runnerFunc func(ctx context.Context) (Outcome, string, error)

func (f runnerFunc) Probe(ctx context.Context, _ Target, _ *corev1.Probe) (Outcome, string, error) {
	return f(ctx)
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen string
		m := NewManager(ManagerOptions{
			Runner: runnerFunc(func(context.Context) (Outcome, string, error) { time.Sleep(time.Second); return Warning, "", nil }),
			Observe: func(pod *corev1.Pod, container string, kind Kind, outcome Outcome, took time.Duration) {
				seen = fmt.Sprint(pod.Name, container, kind, outcome, took)
			},
		})
		defer m.Close()
		m.Set(Pod{Pod: podWith(nil, every(10, 0, 1, 1), nil), Containers: map[string]Container{"c": {ID: "1", StartedAt: time.Now()}}})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if seen != "pcLivenesswarning1s" {
			t.Error(seen)
		}
	})
}

// Many pods change and end while their probes are made.
func TestConcurrency(t *testing.T) {
	bubble(t, func(r *rig) {
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				pod := podWith(every(1, 0, 1, 1), every(1, 0, 1, 1), every(1, 0, 1, 1))
				pod.UID = types.UID(fmt.Sprint(i))
				for round := range 50 {
					r.run(pod, fmt.Sprint(round/3))
					time.Sleep(300 * time.Millisecond)
					r.Results(pod.UID)
				}
				r.Forget(pod.UID)
			})
		}
		group.Wait()
	})
}

func TestNothingFailed(t *testing.T) {
	if got := (Result{}).Failed("c"); got != "" {
		t.Error(got)
	}
}
