package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Invariant 8: after a restart pods that ran go on running, untouched: nothing
// is created, updated, deleted or written.
func TestRestartTouchesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"notified":         func(*rig) {},
		"polled":           func(r *rig) { r.handler = polled{r.provider} },
		"notified at once": func(r *rig) { r.handler = eager{notifying{polled{r.provider}}} },
		"keyed by UID":     func(r *rig) { r.provider.byUID = true; r.handler = uidKeyed{polled{r.provider}} },
		"no list": func(r *rig) {
			r.provider.script(func(s *script) { s.onList = func() error { return errdefs.AsUnavailable(errors.New("away")) } })
		},
		"an empty list":   func(r *rig) { r.provider.script(func(s *script) { s.list = func() []*corev1.Pod { return nil } }) },
		"a list of names": func(r *rig) { r.provider.script(func(s *script) { s.list = namesOnly }) },
		"UIDs not kept": func(r *rig) {
			r.provider.script(func(s *script) { s.show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p } })
		},
		"UIDs of its own": func(r *rig) {
			r.provider.script(func(s *script) { s.show = func(p *corev1.Pod) *corev1.Pod { p.UID = "own-" + p.UID; return p } })
		},
		"labels of its own": func(r *rig) {
			r.provider.script(func(s *script) {
				s.show = func(p *corev1.Pod) *corev1.Pod { metav1.SetMetaDataLabel(&p.ObjectMeta, "backend", "id-7"); return p }
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				prepare(r)
				r.start()
				for i := range 20 {
					r.api.AddPod(aPod(fmt.Sprint("web-", i), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }))
				}
				r.api.AddPod(aPod("done"))
				pass(time.Second)
				r.provider.set("done", corev1.PodSucceeded)
				pass(time.Minute)
				r.end()
				want(t, "phase", r.phase("done"), corev1.PodSucceeded)
				r.provider.took()
				r.api.Written()
				r.events.recorded()
				pass(time.Minute)
				r.start()
				pass(10 * time.Minute)
				wantList(t, "calls", r.provider.took("create", "update", "delete"))
				wantList(t, "writes", r.api.Written())
				wantList(t, "events", r.events.recorded())
			})
		})
	}
}

func namesOnly() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, 20)
	for i := range 20 {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i)}})
	}
	return pods
}

// Invariant 8: what happened while we were down is caught up with.
func TestRestartCatchesUp(t *testing.T) {
	for name, handler := range map[string]func(*fakeProvider) Provider{
		"polled":   func(f *fakeProvider) Provider { return polled{f} },
		"notified": func(f *fakeProvider) Provider { return notifying{polled{f}} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = handler(r.provider)
				r.start()
				for _, name := range []string{"ends", "changes", "deleted", "runs"} {
					r.api.AddPod(aPod(name))
				}
				pass(time.Second)
				r.end()
				r.provider.took()
				r.provider.script(func(s *script) { s.lingers = true })
				r.provider.set("ends", corev1.PodFailed)
				r.api.ChangePod("changes", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
				r.api.DeletePod("deleted")
				r.api.AddPod(aPod("new"))
				r.start()
				pass(time.Second)
				want(t, "ends", r.phase("ends"), corev1.PodFailed)
				want(t, "new", r.phase("new"), corev1.PodRunning)
				want(t, "observed generation", r.api.Pod("changes").Status.ObservedGeneration, 2)
				want(t, "deleted", r.api.Pod("deleted") != nil, true)
				want(t, "calls", len(r.provider.took("update changes", "delete deleted", "create new")), 3)
				r.provider.set("deleted", corev1.PodSucceeded)
				pass(6 * time.Second)
				want(t, "deleted", r.api.Pod("deleted"), nil)
			})
		})
	}
}

// Invariant 6: the observed generation is the one that the provider has taken
// over, also after a restart.
func TestObservedGenerationWaitsForTheUpdate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.end()
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		r.provider.script(func(s *script) {
			s.onUpdate = func(context.Context, *corev1.Pod) error { return errors.New("cannot") }
		})
		r.start()
		pass(time.Minute)
		r.provider.change("web", func(p *corev1.Pod) { p.Status.Message = "news" })
		pass(time.Minute)
		want(t, "message", r.api.Pod("web").Status.Message, "news")
		want(t, "observed generation", r.api.Pod("web").Status.ObservedGeneration, 1)
		r.provider.script(func(s *script) { s.onUpdate = nil })
		pass(time.Minute)
		want(t, "observed generation", r.api.Pod("web").Status.ObservedGeneration, 2)
	})
}

// Invariant 8: a pod that ran and that the provider no longer knows is lost, and
// not executed again. It is one event.
func TestLostPod(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"after a restart, notified": func(r *rig) {
			r.end()
			r.provider.forget("web")
			r.start()
		},
		"after a restart, polled": func(r *rig) {
			r.end()
			r.handler = polled{r.provider}
			r.provider.forget("web")
			r.start()
		},
		"meanwhile, polled": func(r *rig) {
			r.end()
			r.handler = polled{r.provider}
			r.start()
			r.provider.forget("web")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.api.AddPod(aPod("web"))
				synctest.Wait()
				r.provider.took()
				r.events.recorded()
				prepare(r)
				pass(59 * time.Second)
				want(t, "phase, as it may be a moment's error", r.phase("web"), corev1.PodRunning)
				pass(16 * time.Second)
				status := r.api.Pod("web").Status
				want(t, "phase, reason", []string{string(status.Phase), status.Reason}, []string{"Failed", "NotFound"})
				want(t, "container", status.ContainerStatuses[0].State.Terminated.ExitCode, 137)
				wantList(t, "events", r.events.recorded(), "Warning ProviderLost: The provider no longer knows this pod, although it ran it")
				pass(time.Hour)
				wantList(t, "calls", r.provider.took("create", "update", "delete"))
				r.api.DeletePod("web")
				pass(time.Second)
				want(t, "pod", r.api.Pod("web"), nil)
			})
		})
	}
}

// Invariant 8: a provider that notifies and loses a pod may not say so. What two
// lists in a row do not show is asked for.
func TestLostPodWithoutANotification(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"among others":       func(r *rig) { r.api.AddPod(aPod("other")); pass(time.Minute) },
		"the only one":       func(*rig) { pass(time.Minute) },
		"just after a start": func(r *rig) { r.end(); r.start() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.api.AddPod(aPod("web"))
				synctest.Wait()
				prepare(r)
				r.provider.took()
				r.provider.forget("web")
				pass(4 * time.Minute)
				status := r.api.Pod("web").Status
				want(t, "phase, reason", []string{string(status.Phase), status.Reason}, []string{"Failed", "NotFound"})
				want(t, "questions", len(r.provider.took("get")), 5)
			})
		})
	}
}

// A list that does not show what the provider holds takes no pod for lost. One that
// shows none at all is that of a provider which has no list: then nothing is asked.
func TestListThatSaysLess(t *testing.T) {
	for name, list := range map[string]func() []*corev1.Pod{
		"some": func() []*corev1.Pod { return []*corev1.Pod{aPod("other")} },
		"none": func() []*corev1.Pod { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.provider.script(func(s *script) { s.list = list })
				r.start()
				r.api.AddPod(aPod("web"))
				r.api.AddPod(aPod("other"))
				pass(time.Minute)
				r.provider.took()
				pass(time.Hour)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				calls := r.provider.took()
				slices.Sort(calls)
				kinds := []string{"get web", "list"}
				if name == "none" {
					kinds = kinds[1:]
				}
				want(t, "calls", slices.Compact(calls), kinds)
			})
		})
	}
}

// Invariant 8: a pod that is missed for a moment is not lost.
func TestMissedForAMoment(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = polled{r.provider}
		r.start()
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.provider.took()
		for range 10 {
			r.provider.script(func(s *script) { s.show = func(*corev1.Pod) *corev1.Pod { return nil } })
			pass(10 * time.Second) // two rounds
			r.provider.script(func(s *script) { s.show = nil })
			pass(5 * time.Second)
		}
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "calls", r.provider.took("create", "delete"))
	})
}

// Invariant 8: what a provider notifies before the caches have synced counts,
// and an end that it notifies and then forgets is how the pod ended.
func TestNotifiedBeforeTheCachesHaveSynced(t *testing.T) {
	for _, uid := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			r.api.AddPod(aPod("job"))
			synctest.Wait()
			r.end()
			ended := r.api.Pod("job")
			ended.Status = statusOf(ended, corev1.PodSucceeded)
			if !uid {
				ended.UID = ""
			}
			r.provider.forget("job")
			r.handler = earlyWord{notifying{polled{r.provider}}, []*corev1.Pod{ended, aPod("nobody"), {}, nil}}
			r.start()
			pass(time.Second)
			want(t, "phase", r.phase("job"), corev1.PodSucceeded)
			want(t, "records", r.pc.Pods(), 1)
		})
	}
}

// Invariant 8: what a provider lists at the start does not undo what it notified
// meanwhile.
func TestNotifiedWhileItLists(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("job"))
		synctest.Wait()
		r.end()
		ended := r.api.Pod("job")
		ended.Status = statusOf(ended, corev1.PodSucceeded)
		r.provider.script(func(s *script) { s.list = func() []*corev1.Pod { return []*corev1.Pod{r.api.Pod("job")} } })
		r.provider.forget("job")
		r.handler = earlyWord{notifying{polled{r.provider}}, []*corev1.Pod{ended}}
		r.start()
		pass(time.Second)
		want(t, "phase", r.phase("job"), corev1.PodSucceeded)
	})
}

// earlyWord notifies of pods within NotifyPods.
type earlyWord struct {
	notifying
	pods []*corev1.Pod
}

func (e earlyWord) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	e.notifying.NotifyPods(ctx, notify)
	for _, pod := range e.pods {
		if pod != nil {
			pod = pod.DeepCopy()
			if pod.Status.Phase == "" {
				pod.Status.Phase = corev1.PodFailed
			}
		}
		notify(pod)
	}
}

// Invariant 1, 8: an early word without a UID is not taken for one on a pod that
// was not given to the provider yet.
func TestEarlyWordOnAnotherPod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = earlyWord{notifying{polled{r.provider}}, []*corev1.Pod{aPod("web")}}
		r.api.AddPod(aPod("web"))
		r.start()
		pass(time.Second)
		want(t, "creates", len(r.provider.took("create")), 1)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// A provider may notify of a pod that has gone, or of one that never was ours.
func TestNotifiedOfUnknownPods(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) {
			cfg.PodEventFilter = func(_ context.Context, p *corev1.Pod) bool { return p.Spec.NodeName == "vk" }
		})
		r.api.AddPod(aPod("theirs", func(p *corev1.Pod) { p.Spec.NodeName = "another" }))
		synctest.Wait()
		r.provider.took()
		for _, name := range []string{"gone", "theirs", ""} {
			pod := aPod(name)
			pod.Status.Phase = corev1.PodRunning
			r.provider.notify(pod)
		}
		r.provider.notify(nil)
		pass(time.Minute)
		want(t, "records", r.pc.Pods(), 0)
		wantList(t, "writes", r.api.Written())
		wantList(t, "calls", r.provider.took("create", "delete"))
		notify := r.provider.notifier
		r.end()
		late := aPod("late")
		late.Status.Phase = corev1.PodRunning
		notify(late)
		want(t, "records after the end", r.pc.Pods(), 0)
	})
}

// Invariant 2: a pod that a process before this one had created, and that is not Running
// yet, is not created again because the backend answers with nothing for a while. One
// that it goes on not knowing is.
func TestPendingPodIsNotCreatedTwice(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"notified":     func(*rig) {},
		"polled":       func(r *rig) { r.handler = polled{r.provider} },
		"keyed by UID": func(r *rig) { r.provider.byUID = true; r.handler = uidKeyed{polled{r.provider}} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				prepare(r)
				r.start()
				r.api.AddPod(aPod("web"))
				r.api.AddPod(aPod("gone"))
				pass(time.Second)
				for _, name := range []string{"web", "gone"} {
					r.api.ChangePod(name, func(p *corev1.Pod) {
						p.Status = statusOf(p, corev1.PodPending)
						p.Status.StartTime = ptr.To(metav1.Now())
					})
					r.provider.change(name, func(p *corev1.Pod) { p.Status = statusOf(p, corev1.PodPending) })
				}
				r.end()
				r.provider.forget("gone")
				for _, name := range []string{"web", "gone"} {
					r.api.ChangePod(name, func(p *corev1.Pod) {
						p.Status = statusOf(p, corev1.PodPending)
						p.Status.StartTime = ptr.To(metav1.Now())
					})
				}
				empty := errdefs.NotFound("no pods here yet")
				r.provider.script(func(s *script) {
					s.onGet = func(string) error { return empty }
					s.onStatus = s.onGet
					s.list = func() []*corev1.Pod { return nil }
				})
				r.provider.took()
				r.start()
				fresh := r.api.AddPod(aPod("new")).UID
				pass(30 * time.Second)
				wantList(t, "creates while nothing is known", r.provider.took("create"), "create new "+string(fresh))
				r.provider.script(func(s *script) { s.onGet, s.onStatus, s.list = nil, nil, nil })
				pass(2 * time.Minute)
				wantList(t, "creates", r.provider.took("create"), "create gone "+string(r.api.Pod("gone").UID))
				want(t, "phase of the pod that was held", r.phase("web"), corev1.PodPending)
				want(t, "phase of the pod that was lost", r.phase("gone"), corev1.PodRunning)
				want(t, "warnings", len(slices.DeleteFunc(r.events.recorded(), func(e string) bool { return !strings.HasPrefix(e, "Warning ProviderMissing") })), 2)
			})
		})
	}
}

// Invariant 1: a provider that goes by names may list an old pod beside ours, which runs:
// by their name the provider would delete ours.
func TestListWithTwoPodsOfOneName(t *testing.T) {
	for _, oldFirst := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.handler = polled{r.provider}
			r.start()
			for _, name := range []string{"a", "b", "c"} {
				r.api.AddPod(aPod(name))
			}
			pass(time.Minute)
			r.end()
			r.provider.took()
			ours := r.provider.find("default/a")
			old := ours.DeepCopy()
			old.UID, old.Status = "x", statusOf(old, corev1.PodSucceeded)
			shown := []*corev1.Pod{r.provider.find("default/b"), r.provider.find("default/c"), ours, old}
			if oldFirst {
				shown = []*corev1.Pod{r.provider.find("default/b"), r.provider.find("default/c"), old, ours}
			}
			r.provider.script(func(s *script) { s.list = func() []*corev1.Pod { return shown } })
			r.start()
			pass(10 * time.Minute)
			wantList(t, "deletes", r.provider.took("delete"))
			want(t, "phase", r.phase("a"), corev1.PodRunning)
		})
	}
}
