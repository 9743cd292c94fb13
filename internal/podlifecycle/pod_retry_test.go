package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 5: no pod is given up. Errors are retried for ever, at least once a
// minute, and the first try is never delayed.
func TestRetriesForEver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.TakeCalls()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no") }
		})
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		want(t, "creates at once", len(r.provider.TakeCalls("create")), 1)
		pass(10 * time.Second)
		if n := len(r.provider.TakeCalls("create")); n < 5 || n > 9 {
			t.Errorf("tried %d times in ten seconds, want growing delays from 100 ms", n)
		}
		pass(24 * time.Hour)
		if n := len(r.provider.TakeCalls("create")); n < 24*60 || n > 24*60*4/3 {
			t.Errorf("tried %d times in a day, want at least once a minute, and not much more", n)
		}
		pass(time.Hour)
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate = nil })
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "queue", r.pc.Syncs().Len(), 0)
	})
}

// Invariant 5: an error can say when to try again.
func TestRetryAfter(t *testing.T) {
	for _, delay := range []time.Duration{7 * time.Second, 10 * time.Minute} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			r.provider.Script(func(s *nodetest.Script) {
				s.OnCreate = func(context.Context, *corev1.Pod) error { return errdefs.AsRetryAfter(errors.New("throttled"), delay) }
			})
			r.api.AddPod(aPod("web"))
			pass(30*delay + delay/2) // also after MaxRetries
			want(t, "creates", len(r.provider.TakeCalls("create")), 31)
		})
	}
}

// Invariant 5: what happens to a pod meanwhile does not bring the call that has to
// wait forward. Its end is another call, and does not wait.
func TestRetryAfterHolds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error {
				return errdefs.AsRetryAfter(errors.New("throttled"), time.Hour)
			}
		})
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
		for i := range 50 {
			r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "n", fmt.Sprint(i)) })
			pass(time.Minute)
		}
		wantList(t, "creates before it is time", r.provider.TakeCalls("create"))
		want(t, "delayed", r.pc.Syncs().UnprocessedLen(), 1)
		pass(10 * time.Minute)
		want(t, "creates when it is time", len(r.provider.TakeCalls("create")), 1)
		r.api.DeletePod("web")
		pass(time.Second)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 5: a stop that has to wait does, no matter what else changes; the pod gets its
// whole grace period from when the provider has accepted it, and the kill at its end
// does not have to wait: it is another call.
func TestRetryAfterOfAStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		uid := string(r.api.AddPod(aPod("web")).UID)
		synctest.Wait()
		r.provider.TakeCalls()
		throttled := time.Now().Add(35 * time.Second)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(_ context.Context, pod *corev1.Pod) error {
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = *pod.DeletionGracePeriodSeconds > 0 })
				if time.Now().Before(throttled) {
					return errdefs.AsRetryAfter(errors.New("throttled"), 20*time.Second)
				}
				return nil
			}
		})
		r.api.DeletePod("web", 50)
		for range 45 {
			pass(time.Second)
			r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "at", fmt.Sprint(time.Now().Unix())) })
		}
		stop := "delete web " + uid + " grace 50"
		wantList(t, "stops", r.provider.TakeCalls("delete"), stop, stop, stop)
		pass(44 * time.Second)
		wantList(t, "calls within the grace period", r.provider.TakeCalls("delete"))
		pass(5 * time.Second)
		wantList(t, "calls at its end", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// Invariant 5: an informer's resync, in which nothing is new, brings no retry
// forward.
func TestResyncKeepsTheDelays(t *testing.T) {
	for name, tc := range map[string]struct {
		err         error
		least, most int // creates in ten minutes
	}{
		"backoff":     {errors.New("no"), 10, 30},
		"retry after": {errdefs.AsRetryAfter(errors.New("throttled"), 4*time.Minute), 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.provider.Script(func(s *nodetest.Script) {
					s.OnCreate = func(context.Context, *corev1.Pod) error { time.Sleep(time.Second); return tc.err }
				})
				r.api.AddPod(aPod("web"))
				resync := r.pc.podEvents(t.Context())
				for range 1200 {
					pass(500 * time.Millisecond)
					pod := r.api.Pod("web")
					resync.OnUpdate(pod, pod.DeepCopy()) // a relist's: the same version, another object
				}
				if n := len(r.provider.TakeCalls("create")); n < tc.least || n > tc.most {
					t.Errorf("tried %d times in ten minutes, want %d to %d", n, tc.least, tc.most)
				}
			})
		})
	}
}

// What was reported while the API server was away goes out seconds after its return,
// however long that took, and also if it first does not know what we may.
func TestStatusesGoOutAfterAnOutage(t *testing.T) {
	for name, err := range map[string]error{
		"away":    errors.New("dial tcp: connection refused"),
		"failing": apierrors.NewInternalError(errors.New("etcdserver: no leader")),
		"closed":  apierrors.NewServiceUnavailable("shutting down"),
	} {
		for _, outage := range []time.Duration{time.Minute, 2 * time.Hour} {
			t.Run(fmt.Sprint(name, " for ", outage), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.start()
					for i := range 10 {
						r.api.AddPod(aPod(fmt.Sprint("web-", i)))
					}
					pass(time.Second)
					r.api.Fail("patch pods/status", err)
					for i := range 10 {
						r.provider.SetPhase(fmt.Sprint("web-", i), corev1.PodSucceeded)
					}
					r.api.Written()
					pass(outage)
					if n := len(r.api.Written()); n > 10*(10+int(outage/(4*time.Second))) {
						t.Errorf("tried %d times in %v", n, outage)
					}
					r.api.Fail("patch pods/status", apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no roles yet")))
					pass(7 * time.Second)
					r.api.Fail("patch pods/status", nil)
					pass(5 * time.Second)
					for i := range 10 {
						want(t, "phase", r.phase(fmt.Sprint("web-", i)), corev1.PodSucceeded)
					}
				})
			})
		}
	}
}

// Invariant 5: a resync of the status queue neither.
func TestResyncKeepsTheDelaysOfStatuses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.Fail("patch pods/status", apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("no")))
		r.api.AddPod(aPod("web"))
		resync := r.pc.podEvents(t.Context())
		for range 1200 {
			pass(500 * time.Millisecond)
			pod := r.api.Pod("web")
			resync.OnUpdate(pod, pod)
		}
		if n := len(r.api.Written()); n > 40 {
			t.Errorf("tried %d times in ten minutes, want growing delays", n)
		}
	})
}

// Invariant 5, 10: "after no time" is no busy loop.
func TestRetryAfterNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errdefs.AsRetryAfter(errors.New("throttled"), 0) }
		})
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		if n := len(r.provider.TakeCalls("create")); n < 5 || n > 12 {
			t.Errorf("tried %d times in a minute, want the usual delays", n)
		}
	})
}

func TestDefaultRetryFunc(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		tries int
		want  time.Duration // 0: the limiter's
	}{
		"first":                  {errors.New("x"), 1, 0},
		"last of the usual":      {errors.New("x"), 20, 0},
		"many":                   {errors.New("x"), 21, time.Minute},
		"permanent":              {errdefs.AsPermanent(errors.New("x")), 1, time.Minute},
		"retry after":            {errdefs.AsRetryAfter(errors.New("x"), time.Second), 1, time.Second},
		"retry after, many":      {errdefs.AsRetryAfter(errors.New("x"), 5*time.Minute), 21, 5 * time.Minute},
		"retry after no time":    {errdefs.AsRetryAfter(errors.New("x"), 0), 1, 0},
		"retry after, permanent": {errdefs.AsPermanent(errdefs.AsRetryAfter(errors.New("x"), time.Second)), 1, time.Second},
	} {
		delay, err := retryForEver(t.Context(), "default/web", tc.tries, epoch, tc.err)
		if err != nil {
			t.Errorf("%s: gives up: %v", name, err)
		}
		var got time.Duration
		if delay != nil {
			got = *delay
		}
		want(t, name, got, tc.want)
	}
}

// countingLimiter delays by a fixed time, and counts.
type countingLimiter struct {
	delay         time.Duration
	when, forgets atomic.Int32
}

func (l *countingLimiter) When(any) time.Duration { l.when.Add(1); return l.delay }
func (l *countingLimiter) Forget(any)             { l.forgets.Add(1) }
func (l *countingLimiter) NumRequeues(any) int    { return int(l.when.Load()) }

// Invariant 5: the config's limiters and retry functions are for retries only.
func TestCustomRetries(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		limiter := &countingLimiter{delay: 13 * time.Second}
		var keys []string
		var tries []int
		var since []time.Time
		r.start(func(cfg *Config) {
			cfg.Syncs.Limiter = limiter
			cfg.Syncs.Decide = func(_ context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error) {
				keys, tries, since = append(keys, key), append(tries, timesTried), append(since, originallyAdded)
				if timesTried == 4 {
					return nil, err
				}
				return nil, nil
			}
		})
		r.api.AddPod(aPod("fine"))
		pass(time.Minute)
		r.api.DeletePod("fine")
		pass(time.Minute)
		want(t, "delays without a failure", limiter.when.Load(), 0)

		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no") }
		})
		begin := time.Now()
		r.api.AddPod(aPod("web"))
		pass(40 * time.Second)
		want(t, "creates", len(r.provider.TakeCalls("create web")), 4)
		want(t, "delays", limiter.when.Load(), 3)
		wantList(t, "keys", keys, "default/web", "default/web", "default/web", "default/web")
		want(t, "tries", tries, []int{1, 2, 3, 4})
		want(t, "since", since, []time.Time{begin, begin, begin, begin})
		pass(time.Hour)
		wantList(t, "creates after it was given up", r.provider.TakeCalls("create web"))
		r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		synctest.Wait()
		want(t, "creates when something changes", len(r.provider.TakeCalls("create web")), 1)
	})
}

// Invariant 9, 10: a retry function that panics is survived.
func TestRetryFuncThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) {
			cfg.Syncs.Decide = func(context.Context, string, int, time.Time, error) (*time.Duration, error) {
				panic("boom")
			}
		})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no") }
		})
		r.api.AddPod(aPod("web"))
		pass(10*time.Minute + time.Second)
		want(t, "creates", len(r.provider.TakeCalls("create")), 11)
	})
}

// The queue length getters tell the truth.
func TestQueueLengths(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		check := func(what string, wanted ...int) {
			t.Helper()
			synctest.Wait()
			pc := r.pc
			want(t, what, []int{
				pc.Syncs().Len(), pc.Syncs().UnprocessedLen(), pc.Syncs().ItemsBeingProcessedLen(),
				pc.Removals().Len(), pc.Removals().UnprocessedLen(), pc.Removals().ItemsBeingProcessedLen(),
				pc.Statuses().Len(), pc.Statuses().UnprocessedLen(), pc.Statuses().ItemsBeingProcessedLen(),
			}, wanted)
		}
		check("at first", 0, 0, 0, 0, 0, 0, 0, 0, 0)
		release := make(chan struct{})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { <-release; return nil }
		})
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			r.api.AddPod(aPod(name))
		}
		check("three workers, five pods", 5, 2, 3, 0, 0, 0, 0, 0, 0)
		close(release)
		check("all created", 0, 0, 0, 0, 0, 0, 0, 0, 0)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("no") }
		})
		r.api.AddPod(aPod("f"))
		check("one waits for its retry", 1, 1, 0, 0, 0, 0, 0, 0, 0)
		r.api.DeletePod("f")
		check("and is gone", 0, 0, 0, 0, 0, 0, 0, 0, 0)
	})
}

// Invariants 1 and 5: a pod waits for an older one of its name whose key a retry function
// has given up; what happens to the pod has that one tried again.
func TestOlderPodThatWasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) {
			cfg.Syncs.Decide = func(context.Context, string, int, time.Time, error) (*time.Duration, error) {
				return nil, errors.New("given up")
			}
		})
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errors.New("refused") }
		})
		r.api.Gap(func() { r.replace("web") })
		pass(time.Minute)
		r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
		r.provider.TakeCalls()
		r.api.ChangePod("web", func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "b") })
		pass(time.Minute)
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
	})
}

// Invariant 2: a pod that the provider reports to run is not created again, although the
// call that created it has failed, and a backend that answers with nothing is asked to end
// it. One that it reports as waiting is created again.
func TestReportedAlthoughItsCreationFailed(t *testing.T) {
	for phase, calls := range map[corev1.PodPhase][]string{
		corev1.PodRunning: {"create web UID", "delete web UID grace 30"},
		corev1.PodPending: {"create web UID", "create web UID", "delete web UID grace 30"},
	} {
		t.Run(string(phase), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				created := 0
				r.provider.Script(func(s *nodetest.Script) {
					s.OnCreate = func(_ context.Context, pod *corev1.Pod) error {
						if created++; created > 1 {
							return nil
						}
						r.provider.Notify(r.provider.Hold(pod, phase))
						r.provider.Empty()
						return errors.New("the connection was closed")
					}
				})
				pod := r.api.AddPod(aPod("web"))
				pass(10 * time.Second)
				r.api.DeletePod("web")
				pass(10 * time.Second)
				for i := range calls {
					calls[i] = strings.Replace(calls[i], "UID", string(pod.UID), 1)
				}
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), calls...)
			})
		})
	}
}
