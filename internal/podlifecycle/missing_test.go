package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

func TestMassLoss(t *testing.T) {
	for _, tc := range []struct {
		census
		suspicious, massLoss bool
	}{
		{census{held: 0, missing: 1}, false, false},
		{census{held: 0, missing: 2}, false, false},
		{census{held: 0, missing: 3}, true, true},
		{census{held: 1, missing: 2}, false, false},
		{census{held: 2, missing: 3}, true, true},
		{census{held: 3, missing: 3}, false, false},
		{census{held: 99, missing: 98}, false, false},
		{census{held: 99, missing: 100}, true, true},
		{census{held: 0, missing: 1, unsure: 9}, true, false},
		{census{held: 5, missing: 3, unsure: 3}, true, false},
		{census{held: 5, missing: 0, unsure: 3}, false, false},
	} {
		want(t, fmt.Sprintf("suspicious with %+v", tc.census), tc.census.suspicious(), tc.suspicious)
		want(t, fmt.Sprintf("mass loss with %+v", tc.census), tc.census.massLoss(), tc.massLoss)
	}
}

// addPods adds pods of names that begin with web-, and has them run.
func (r *rig) addPods(n int) {
	r.t.Helper()
	for i := range n {
		r.api.AddPod(aPod(fmt.Sprint("web-", i)))
	}
	pass(20 * time.Second)
	r.provider.TakeCalls()
	r.events.recorded()
}

// phases counts the pods of addPods by phase.
func (r *rig) phases(n int) map[corev1.PodPhase]int {
	count := map[corev1.PodPhase]int{}
	for i := range n {
		count[r.phase(fmt.Sprint("web-", i))]++
	}
	return count
}

// Invariant 8: a provider that answers with nothing for less than a minute loses no pod.
func TestEmptyForAMoment(t *testing.T) {
	for _, n := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start()
				r.addPods(n)
				back := r.provider.Empty()
				pass(50 * time.Second)
				back()
				pass(10 * time.Minute)
				want(t, "phases", r.phases(n), map[corev1.PodPhase]int{corev1.PodRunning: n})
				wantList(t, "calls", r.provider.TakeCalls("create", "update", "delete"))
				wantList(t, "events", r.events.recorded())
				r.provider.SetPhase("web-0", corev1.PodSucceeded)
				pass(10 * time.Second)
				want(t, "phase of one that has ended since", r.phase("web-0"), corev1.PodSucceeded)
			})
		})
	}
}

// A node of a pod or two notices that they are lost within 75 seconds; so does one of
// which less than half are.
func TestFewLostPodsAreNoticed(t *testing.T) {
	for name, tc := range map[string]struct{ all, lost int }{"one of one": {1, 1}, "two of two": {2, 2}, "one of three": {3, 1}, "three of seven": {7, 3}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start()
				r.addPods(tc.all)
				pass(time.Millisecond) // just after a round
				for i := range tc.lost {
					r.provider.Forget(fmt.Sprint("web-", i))
				}
				pass(75 * time.Second)
				counted := map[corev1.PodPhase]int{corev1.PodFailed: tc.lost}
				if tc.all > tc.lost {
					counted[corev1.PodRunning] = tc.all - tc.lost
				}
				want(t, "phases", r.phases(tc.all), counted)
				condition := r.api.Pod("web-0").Status.Conditions
				i := slices.IndexFunc(condition, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
				if i < 0 || condition[i].Status != corev1.ConditionTrue || condition[i].Reason != ReasonProviderLost {
					t.Errorf("conditions: %+v, want DisruptionTarget", condition)
				}
			})
		})
	}
}

// Invariant 8: where most pods are missing at once the provider is taken for sick. The
// node says so, and the pods stay, until they are there again.
func TestMostPodsMissing(t *testing.T) {
	const n = 5
	restart := func(r *rig) { r.end(); r.start() }
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	for name, tc := range map[string]struct {
		handler func(*rig)
		during  func(*rig)
	}{
		"polled":                {handler: func(r *rig) { r.handler = r.provider.Polled() }},
		"polled, agent restart": {handler: func(r *rig) { r.handler = r.provider.Polled() }, during: restart},
		"notified, restart":     {during: restart},
		"no list": {handler: func(r *rig) {
			r.handler = r.provider.Polled()
			r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errors.New("not implemented") } })
		}},
		"keyed by UID, restart": {handler: func(r *rig) { r.handler = r.provider.ByUID() }, during: restart},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				if tc.handler != nil {
					tc.handler(r)
				}
				r.start()
				r.api.AddPod(aPod("job", never))
				r.addPods(n)
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
				back := r.provider.Empty()
				if tc.during != nil {
					tc.during(r)
				}
				pass(20 * time.Minute)
				want(t, "phases", r.phases(n), map[corev1.PodPhase]int{corev1.PodRunning: n})
				want(t, "phase of the job", r.phase("job"), corev1.PodRunning)
				wantList(t, "calls", r.provider.TakeCalls("create", "update", "delete"))
				events := r.events.recorded()
				slices.Sort(events)
				recorded := slices.Compact(slices.Clone(events))
				want(t, "events", len(events), n+2)
				wantList(t, "kinds of events", recorded, "Warning PodsMissing: "+podsMissingCondition(n+1, n+1).Message, "Warning ProviderMissing: "+missingMessage)
				want(t, "condition", r.condition(ConditionPodsMissing), corev1.ConditionTrue)

				back()
				pass(3 * time.Minute)
				want(t, "condition then", r.condition(ConditionPodsMissing), corev1.ConditionFalse)
				want(t, "phases", r.phases(n), map[corev1.PodPhase]int{corev1.PodRunning: n})
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
				wantList(t, "events then", r.events.recorded(), "Normal PodsFound: "+podsMissingCondition(0, 6).Message)
				pass(time.Hour)
				want(t, "condition later", r.condition(ConditionPodsMissing), corev1.ConditionFalse)
			})
		})
	}
}

// pending is the status of a pod that was created and does not run yet.
func pending(p *corev1.Pod) {
	p.Status = nodetest.StatusOf(p, corev1.PodPending)
	p.Status.StartTime = ptr.To(metav1.Now())
}

// Invariant 2: where most pods are missing at once that were created before a restart and
// do not run yet, none is created again, until most are known again or were deleted.
func TestMostPendingPodsMissing(t *testing.T) {
	const n = 5
	bothKinds(t, func(t *testing.T, r *rig) {
		for i := range n {
			r.provider.Hold(r.api.AddPod(aPod(fmt.Sprint("web-", i), pending)), corev1.PodPending)
		}
		back := r.provider.Empty()
		r.start()
		pass(5 * time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
		want(t, "phases", r.phases(n), map[corev1.PodPhase]int{corev1.PodPending: n})
		want(t, "condition", r.condition(ConditionPodsMissing), corev1.ConditionTrue)
		events := slices.DeleteFunc(r.events.recorded(), func(e string) bool { return strings.HasSuffix(e, createAgainMessage) })
		slices.Sort(events)
		want(t, "events", len(events), n+1)
		wantList(t, "kinds of events", slices.Compact(events), "Warning PodsMissing: "+podsMissingCondition(n, n).Message, "Warning ProviderMissing: "+pendingMissingMessage)

		back()
		pass(3 * time.Minute)
		want(t, "condition then", r.condition(ConditionPodsMissing), corev1.ConditionFalse)
		wantList(t, "calls then", r.provider.TakeCalls("create", "delete"))
	})
}

// A pod of before a restart that this process has tried to create is missed by nobody any more:
// it does not count as missing, and is tried until it is created.
func TestPendingPodsThatAreCreatedAgainAreNotMissing(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		for i := range 4 {
			r.provider.Hold(r.api.AddPod(aPod(fmt.Sprint("web-", i), pending)), corev1.PodRunning)
		}
		for i := range 3 {
			r.api.AddPod(aPod(fmt.Sprint("lost-", i), pending))
		}
		var full atomic.Bool
		full.Store(true)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error {
				if full.Load() {
					return errors.New("no quota")
				}
				return nil
			}
		})
		r.start()
		pass(3 * time.Minute)
		r.api.DeletePod("web-0")
		r.api.DeletePod("web-1")
		pass(10 * time.Minute)
		full.Store(false)
		r.provider.TakeCalls("create")
		pass(10 * time.Minute)
		want(t, "creations", len(r.provider.TakeCalls("create")), 3)
		want(t, "condition", r.condition(ConditionPodsMissing) == corev1.ConditionTrue, false)
	})
}

// Pods that are ended since their deadline is over do not count as held while the provider knows
// none: the others would be lost.
func TestExpiredPodsAreNotCountedWhileMostAreMissing(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		for i := range 6 {
			deadline := func(*corev1.Pod) {}
			if i < 3 {
				deadline = within(1)
			}
			pod := r.api.AddPod(aPod(fmt.Sprint("web-", i), pending, deadline, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
			r.provider.Hold(pod, corev1.PodRunning)
		}
		r.provider.Empty()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errors.New("the service is sick") }
		})
		r.start()
		pass(5 * time.Minute)
		for i := 3; i < 6; i++ {
			want(t, fmt.Sprint("phase of ", i), r.phase(fmt.Sprint("web-", i)), corev1.PodRunning)
		}
	})
}

// Invariant 2: where no pod is ever lost, one that was created before a restart and does not
// run yet is not created again either. People learn of it, and delete it.
func TestMissingPendingPodWhereNoneIsLost(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		uid := string(r.api.AddPod(aPod("web", pending)).UID)
		r.start(func(cfg *Config) { cfg.LostPodTimeout = -1 })
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
		wantList(t, "events", r.events.recorded(), "Warning ProviderMissing: "+neverAgainMessage)
		r.api.DeletePod("web")
		pass(time.Minute)
		wantList(t, "calls then", r.provider.TakeCalls("create", "delete"), "delete web "+uid+" grace 30")
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Those that are still missing when most pods are there again are lost a minute later.
func TestSomeStayMissing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.addPods(7)
		back := r.provider.Empty()
		pass(10 * time.Minute)
		back()
		r.provider.Forget("web-0")
		r.provider.Forget("web-1")
		pass(50 * time.Second)
		want(t, "condition", r.condition(ConditionPodsMissing), corev1.ConditionFalse)
		want(t, "phases", r.phases(7), map[corev1.PodPhase]int{corev1.PodRunning: 7})
		pass(30 * time.Second)
		want(t, "phases", r.phases(7), map[corev1.PodPhase]int{corev1.PodRunning: 5, corev1.PodFailed: 2})
	})
}

// An operator who knows that the pods are lost deletes them, and they go.
func TestMissingPodsAreDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.addPods(4)
		back := r.provider.Empty()
		pass(10 * time.Minute)
		for i := range 4 {
			r.api.DeletePod(fmt.Sprint("web-", i))
		}
		pass(time.Minute)
		want(t, "phases", r.phases(4), map[corev1.PodPhase]int{"": 4})
		want(t, "condition", r.condition(ConditionPodsMissing), corev1.ConditionFalse)
		r.provider.TakeCalls()
		back() // they ran on, after all: each is ended
		pass(5 * time.Minute)
		calls := r.provider.TakeCalls("delete")
		if len(calls) != 4 || slices.ContainsFunc(calls, func(c string) bool { return !strings.HasSuffix(c, "grace 30") }) {
			t.Errorf("calls: %q, want a stop for each", calls)
		}
	})
}

// A pod that was given up and shows up again is ended in the provider, also after a
// restart; it is not taken back.
func TestGivenUpPodIsSeenAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		handler func(*nodetest.Backend) Provider
		between func(*rig)
		appear  func(r *rig, back func())
	}{
		"in a list":                      {handler: func(f *nodetest.Backend) Provider { return f.Polled() }},
		"in a list of one that notifies": {handler: func(f *nodetest.Backend) Provider { return f.Notifying() }},
		"in a notification": {
			handler: func(f *nodetest.Backend) Provider { return f.Notifying() },
			appear:  func(r *rig, back func()) { back(); r.provider.SetPhase("web", corev1.PodRunning) },
		},
		"after a restart": {
			handler: func(f *nodetest.Backend) Provider { return f.Polled() },
			between: func(r *rig) { r.end(); r.start() },
		},
		"after a restart, keyed by UID": {
			handler: func(f *nodetest.Backend) Provider { return f.ByUID() },
			between: func(r *rig) { r.end(); r.start() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = tc.handler(r.provider)
				r.start()
				r.api.AddPod(aPod("other"))
				uid := string(r.api.AddPod(aPod("web")).UID)
				pass(time.Minute)
				pod := r.provider.Forget("web")
				pass(10 * time.Minute)
				want(t, "phase", r.phase("web"), corev1.PodFailed)
				if tc.between != nil {
					tc.between(r)
				}
				pass(time.Minute)
				r.provider.TakeCalls()
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
				back := func() { r.provider.Hold(pod, corev1.PodRunning) }
				if tc.appear != nil {
					tc.appear(r, back)
				} else {
					back()
				}
				pass(10 * time.Minute)
				calls := r.provider.TakeCalls("create", "delete")
				if len(calls) < 2 || calls[0] != "delete web "+uid+" grace 30" || calls[1] != "delete web "+uid+" grace 0" {
					t.Errorf("calls: %q, want a stop, then a kill", calls)
				}
				want(t, "phase", r.phase("web"), corev1.PodFailed)
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = false })
				pass(2 * time.Minute)
				want(t, "held", len(r.provider.Holds("web")), 0)
				want(t, "the other", r.phase("other"), corev1.PodRunning)
				r.provider.TakeCalls()
				r.provider.Hold(pod, corev1.PodRunning) // and again
				pass(10 * time.Minute)
				want(t, "held", len(r.provider.Holds("web")), 0)
				r.provider.TakeCalls()
				pass(time.Hour)
				wantList(t, "calls later", r.provider.TakeCalls("create", "delete", "get"))
			})
		})
	}
}

// The time after which a pod is lost is the config's; it can be for ever.
func TestLostPodTimeout(t *testing.T) {
	for timeout, phases := range map[time.Duration][]corev1.PodPhase{
		3 * time.Second:  {corev1.PodFailed, corev1.PodFailed},
		10 * time.Minute: {corev1.PodRunning, corev1.PodFailed},
		-1:               {corev1.PodRunning, corev1.PodRunning},
	} {
		t.Run(timeout.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start(func(cfg *Config) { cfg.LostPodTimeout = timeout })
				r.addPods(1)
				r.provider.Forget("web-0")
				pass(10 * time.Second)
				want(t, "phase", r.phase("web-0"), phases[0])
				pass(time.Hour)
				want(t, "phase", r.phase("web-0"), phases[1])
			})
		})
	}
}

// Failures to answer are no misses.
func TestFailuresLoseNoPod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.addPods(1)
		r.provider.Forget("web-0")
		pass(6 * time.Second) // it is missed once
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(string) error { return errdefs.AsUnavailable(errors.New("away")) }
			s.OnStatus, s.OnList = s.OnGet, func() error { return errdefs.AsUnavailable(errors.New("away")) }
		})
		pass(time.Hour)
		want(t, "phase", r.phase("web-0"), corev1.PodRunning)
		r.provider.Script(func(s *nodetest.Script) { s.OnGet, s.OnStatus, s.OnList = nil, nil, nil })
		pass(3 * time.Minute)
		want(t, "phase", r.phase("web-0"), corev1.PodFailed)
		synctest.Wait()
	})
}

// Invariant 8: a question that the provider cannot answer says nothing of a pod that it has
// missed before.
func TestFailedQuestionsLoseNoPod(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		back := r.provider.Empty()
		r.pc.records.each(func(one *podRecord) { // asked for at once, of either kind
			one.mu.Lock()
			defer one.mu.Unlock()
			one.observed = unknown
			r.pc.Syncs().Add(one.key())
		})
		pass(45 * time.Second)
		away := errors.New("the backend is away")
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(string) error { return away }
			s.OnStatus = s.OnGet
			s.OnList = func() error { return away }
		})
		pass(5 * time.Minute)
		back()
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		r.provider.Script(func(s *nodetest.Script) { *s = nodetest.Script{} })
		pass(5 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(r.api.Pod("web").UID))
	})
}

// Invariant 8: an answer that took long is not the last look of a pod that is missed: it was
// asked for before the time was over.
func TestSlowAnswersLoseNoPod(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		back := r.provider.Empty()
		questions := 0
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(string) error {
				switch questions++; questions {
				case 3:
					time.Sleep(2 * time.Minute)
				case 4:
					back()
				}
				return nil
			}
		})
		r.pc.records.each(func(one *podRecord) { // asked for at once, of either kind
			one.mu.Lock()
			defer one.mu.Unlock()
			one.observed = unknown
			r.pc.Syncs().Add(one.key())
		})
		pass(5 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "questions", questions, 4)
	})
}
