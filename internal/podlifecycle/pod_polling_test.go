package podlifecycle

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// A round of polling is one GetPods, and GetPodStatus for what is missing in it.
func TestPollingRound(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		for i := range 10 {
			r.api.AddPod(aPod(fmt.Sprint("web-", i)))
		}
		pass(time.Second)
		r.provider.TakeCalls()
		pass(5 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls(), "list")
		r.provider.Script(func(s *nodetest.Script) {
			s.Show = func(p *corev1.Pod) *corev1.Pod {
				switch p.Name {
				case "web-3":
					p.Status = corev1.PodStatus{}
				case "web-7":
					p.Namespace = ""
				}
				return p
			}
		})
		pass(5 * time.Second)
		calls := r.provider.TakeCalls()
		slices.Sort(calls)
		wantList(t, "calls", calls, "list", "status web-3", "status web-7")
		r.provider.Script(func(s *nodetest.Script) { s.Show = nil })
		r.provider.SetPhase("web-5", corev1.PodSucceeded)
		pass(5 * time.Second)
		want(t, "phase", r.phase("web-5"), corev1.PodSucceeded)
		r.provider.Script(func(s *nodetest.Script) { s.List = func() []*corev1.Pod { return nil } })
		r.provider.TakeCalls()
		pass(5 * time.Second)
		want(t, "questions when nothing is listed, the ended pod aside", len(r.provider.TakeCalls("status")), 9)
	})
}

// The questions of a round are asked at the same time.
func TestPollingIsConcurrent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		for i := range 9 {
			r.api.AddPod(aPod(fmt.Sprint("web-", i)))
		}
		pass(time.Second)
		r.provider.Script(func(s *nodetest.Script) {
			s.List = func() []*corev1.Pod { return nil }
			s.OnStatus = func(string) error { time.Sleep(time.Second); return nil }
		})
		pass(9 * time.Second) // the first round is over: 3 s with three workers
		r.provider.TakeCalls()
		pass(5500 * time.Millisecond) // the next is not, but all is asked
		want(t, "questions", len(r.provider.TakeCalls("status")), 9)
	})
}

// The interval is the config's.
func TestPollInterval(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start(func(cfg *Config) { cfg.PollInterval = time.Minute })
		r.provider.TakeCalls()
		pass(10*time.Minute + time.Second)
		want(t, "lists", len(r.provider.TakeCalls("list")), 10)
	})
}

// A provider that notifies is not polled, only searched now and then for orphans
// and for what it has not notified: each minute while there is some, and every five.
func TestNotifierIsNotPolled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		r.provider.TakeCalls()
		pass(time.Hour)
		calls := r.provider.TakeCalls()
		want(t, "calls", len(calls), 13)
		want(t, "kinds of calls", slices.Compact(calls), []string{"list"})

		r.provider.Hold(r.api.Pod("web"), corev1.PodFailed) // which it does not tell
		pass(6 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodFailed)
		r.provider.TakeCalls()
		left := aPod("left")
		left.UID = "left-1"
		r.provider.Hold(left, corev1.PodRunning)
		pass(8 * time.Minute)
		wantList(t, "calls for an orphan", r.provider.TakeCalls("delete"), "delete left left-1 grace 30")
	})
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) { cfg.KeepOrphans = true })
		r.provider.TakeCalls()
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls())
	})
}

// A list that fails, or that a provider does not have, takes no pod for lost.
func TestListThatFails(t *testing.T) {
	for name, err := range map[string]error{
		"unclassified": errors.New("no list here"),
		"unavailable":  errdefs.AsUnavailable(errors.New("away")),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return err } })
				r.start()
				r.api.AddPod(aPod("web"))
				pass(time.Hour)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				r.provider.TakeCalls()
				r.provider.SetPhase("web", corev1.PodFailed)
				pass(5 * time.Second)
				if name == "unclassified" { // it may never have a list: its pods are asked for one by one
					want(t, "phase", r.phase("web"), corev1.PodFailed)
				} else {
					wantList(t, "questions", r.provider.TakeCalls("status"))
				}
			})
		})
	}
}

// A list that worked, and fails now, is asked for less and less often, and its pods
// are not asked for one by one in its place. It is made up for once it works again.
func TestFailingListLengthensTheRound(t *testing.T) {
	for name, tc := range map[string]struct {
		err         error
		least, most int // lists in an hour
		late        time.Duration
	}{
		"unclassified": {errors.New("overloaded"), 55, 70, time.Minute},
		"unavailable":  {errdefs.AsUnavailable(errors.New("away")), 55, 70, time.Minute},
		"retry after":  {errdefs.AsRetryAfter(errors.New("throttled"), 10*time.Minute), 6, 6, 10 * time.Minute},
		"not found":    {errdefs.NotFound("no such account"), 55, 70, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start()
				for i := range 50 {
					r.api.AddPod(aPod(fmt.Sprint("web-", i)))
				}
				pass(time.Second)
				r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return tc.err } })
				r.provider.SetPhase("web-7", corev1.PodFailed)
				r.provider.TakeCalls()
				pass(time.Hour)
				calls := r.provider.TakeCalls()
				if n := len(calls); n < tc.least || n > tc.most {
					t.Errorf("%d calls in an hour, want %d to %d", n, tc.least, tc.most)
				}
				want(t, "kinds of calls", slices.Compact(calls), []string{"list"})
				want(t, "phase", r.phase("web-0"), corev1.PodRunning)
				r.provider.Script(func(s *nodetest.Script) { s.OnList = nil })
				pass(tc.late)
				want(t, "phase", r.phase("web-7"), corev1.PodFailed)
				r.provider.TakeCalls()
				pass(time.Minute)
				want(t, "lists in a minute", len(r.provider.TakeCalls("list")), 12)
			})
		})
	}
}

// Of a provider that may have no list at all a few pods are asked for at a time.
func TestNoListAtAll(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errors.New("not implemented") } })
		r.start()
		for i := range 50 {
			r.api.AddPod(aPod(fmt.Sprint("web-", i)))
		}
		pass(time.Second)
		r.provider.TakeCalls()
		pass(10 * time.Minute)
		calls := r.provider.TakeCalls()
		lists := len(slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c != "list" }))
		if lists > 16 {
			t.Errorf("%d lists in ten minutes, want less and less", lists)
		}
		if n := len(calls) - lists; n < 3*115 || n > 3*120 {
			t.Errorf("%d questions in ten minutes, want three each five seconds", n)
		}
	})
}

func TestRounds(t *testing.T) {
	away, later := errdefs.AsUnavailable(errors.New("away")), errdefs.AsRetryAfter(errors.New("throttled"), 7*time.Minute)
	soon := errdefs.AsRetryAfter(errors.New("throttled"), time.Second)
	type round struct {
		quiet bool
		err   error
		want  time.Duration
	}
	for name, tc := range map[string]struct {
		plan   rounds
		rounds []round
	}{
		"polled": {rounds{every: 5 * time.Second}, []round{
			{true, nil, 5 * time.Second}, {false, nil, 5 * time.Second},
			{false, away, 10 * time.Second}, {false, away, 20 * time.Second}, {false, away, 40 * time.Second}, {false, away, time.Minute}, {false, away, time.Minute},
			{true, nil, 5 * time.Second}, {false, away, 10 * time.Second}, {false, later, 7 * time.Minute}, {false, soon, 5 * time.Second}, {true, nil, 5 * time.Second},
		}},
		"polled rarely": {rounds{every: 2 * time.Minute}, []round{{false, away, 2 * time.Minute}, {true, nil, 2 * time.Minute}}},
		"notified": {rounds{every: 5 * time.Second, notified: true}, []round{
			{true, nil, 5 * time.Second}, {true, nil, 5 * time.Second}, {true, nil, time.Minute}, {true, nil, 2 * time.Minute}, {true, nil, 4 * time.Minute},
			{false, away, 5 * time.Minute}, {true, nil, 5 * time.Minute}, {false, nil, time.Minute}, {false, away, 2 * time.Minute}, {false, away, 4 * time.Minute},
			{false, later, 7 * time.Minute}, {false, nil, time.Minute},
		}},
		"failing from the start": {rounds{every: 5 * time.Second, notified: true}, []round{
			{false, away, 10 * time.Second}, {false, away, 20 * time.Second}, {true, nil, 5 * time.Second}, {true, nil, 5 * time.Second}, {true, nil, time.Minute},
		}},
	} {
		for i, r := range tc.rounds {
			want(t, fmt.Sprintf("%s, round %d", name, i), tc.plan.next(r.quiet, r.err), r.want)
		}
	}
}

// A GetPodStatus that fails, or that has nothing to say, is not an end.
func TestStatusThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.provider.Script(func(s *nodetest.Script) { s.List = func() []*corev1.Pod { return nil } })
		r.startWith(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) { s.OnStatus = func(string) error { return errors.New("cannot tell") } })
		pass(time.Hour)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
	})
}

// An answer that was given before the newest word does not count.
func TestStaleAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		pod := r.startWith(aPod("web"))
		pc, record := r.pc, r.record("web")
		asked := pc.observations.Load()
		newer, old := nodetest.StatusOf(pod, corev1.PodRunning), nodetest.StatusOf(pod, corev1.PodRunning)
		newer.Message, old.Message = "newer", "old"
		pc.answered(record, &newer, asked)
		pc.answered(record, &old, asked)
		for range 5 {
			pc.answered(record, nil, asked)
		}
		synctest.Wait()
		status := r.api.Pod("web").Status
		want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Running", "", "newer"})
	})
}

// In a round, what was listed before a pod was created says nothing of it.
func TestPollThatBeganBeforeThePod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		old := aPod("web")
		old.Status = nodetest.StatusOf(old, corev1.PodFailed)
		r.provider.Script(func(s *nodetest.Script) {
			s.List = func() []*corev1.Pod { time.Sleep(10 * time.Second); return []*corev1.Pod{old} }
		})
		pass(6 * time.Second)
		r.api.AddPod(aPod("web"))
		pass(10 * time.Second)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}
