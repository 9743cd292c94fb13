package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 8: after a restart pods that ran go on running, untouched: nothing
// is created, updated, deleted or written.
func TestRestartTouchesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"notified":         func(*rig) {},
		"polled":           func(r *rig) { r.handler = r.provider.Polled() },
		"notified at once": func(r *rig) { r.handler = eager{r.provider.Notifying()} },
		"keyed by UID":     func(r *rig) { r.handler = r.provider.ByUID() },
		"no list": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errdefs.AsUnavailable(errors.New("away")) } })
		},
		"an empty list": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.List = func() []*corev1.Pod { return nil } })
		},
		"a list of names": func(r *rig) { r.provider.Script(func(s *nodetest.Script) { s.List = namesOnly }) },
		"UIDs not kept": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p } })
		},
		"UIDs of its own": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) {
				s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = "own-" + p.UID; return p }
			})
		},
		"labels of its own": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) {
				s.Show = func(p *corev1.Pod) *corev1.Pod { metav1.SetMetaDataLabel(&p.ObjectMeta, "backend", "id-7"); return p }
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
				r.provider.SetPhase("done", corev1.PodSucceeded)
				pass(time.Minute)
				r.end()
				want(t, "phase", r.phase("done"), corev1.PodSucceeded)
				r.provider.TakeCalls()
				r.api.Written()
				r.events.recorded()
				pass(time.Minute)
				r.start()
				pass(10 * time.Minute)
				wantList(t, "calls", r.provider.TakeCalls("create", "update", "delete"))
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
	bothKinds(t, func(t *testing.T, r *rig) {
		r.start()
		for _, name := range []string{"ends", "changes", "deleted", "runs"} {
			r.api.AddPod(aPod(name))
		}
		pass(time.Second)
		r.end()
		r.provider.TakeCalls()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.provider.SetPhase("ends", corev1.PodFailed)
		r.api.ChangePod("changes", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		r.api.DeletePod("deleted")
		r.api.AddPod(aPod("new"))
		r.start()
		pass(time.Second)
		want(t, "ends", r.phase("ends"), corev1.PodFailed)
		want(t, "new", r.phase("new"), corev1.PodRunning)
		want(t, "observed generation", r.api.Pod("changes").Status.ObservedGeneration, 2)
		want(t, "deleted", r.api.Pod("deleted") != nil, true)
		want(t, "calls", len(r.provider.TakeCalls("update changes", "delete deleted", "create new")), 3)
		r.provider.SetPhase("deleted", corev1.PodSucceeded)
		pass(6 * time.Second)
		want(t, "deleted", r.api.Pod("deleted"), nil)
	})
}

// Invariant 8: so it is if the API has no observed generation. A provider that goes on showing what it was first
// given is updated once. Resources alone are no change where it shows no generation.
func TestRestartCatchesUpWithoutObservedGenerations(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"no generations":          func(r *rig) { r.api.NoGenerations = true },
		"no observed generations": func(r *rig) { r.api.NoObservedGenerations = true },
		"a provider of specs": func(r *rig) {
			r.api.NoObservedGenerations = true
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.Generation = 0; return p } })
		},
		"a provider of generations": func(r *rig) {
			r.api.NoObservedGenerations = true
			r.provider.Script(func(s *nodetest.Script) {
				s.Show = func(p *corev1.Pod) *corev1.Pod {
					p = r.api.Pod(p.Name).DeepCopy()
					p.Status = nodetest.StatusOf(p, corev1.PodRunning)
					p.Status.ObservedGeneration = 1
					return p
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, r *rig) {
				prepare(r)
				changes := map[string]func(*corev1.PodSpec){
					"image": func(s *corev1.PodSpec) { s.Containers[0].Image = "nginx:2" },
					"resources": func(s *corev1.PodSpec) {
						s.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
					},
					"ephemeral": func(s *corev1.PodSpec) {
						s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
					},
					"deadline": func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = ptr.To[int64](7000) },
				}
				r.start()
				r.api.AddPod(aPod("same"))
				for name := range changes {
					r.api.AddPod(aPod(name, func(p *corev1.Pod) {
						p.Spec.ActiveDeadlineSeconds = ptr.To[int64](8000)
						p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
					}))
				}
				pass(time.Second)
				r.end()
				for name, change := range changes {
					r.api.ChangePod(name, func(p *corev1.Pod) { change(&p.Spec) })
				}
				r.provider.TakeCalls()
				r.start()
				pass(10 * time.Minute)
				if name == "no generations" || name == "a provider of specs" {
					delete(changes, "resources")
				}
				var want []string
				for _, name := range slices.Sorted(maps.Keys(changes)) {
					want = append(want, "update "+name+" "+string(r.api.Pod(name).UID))
				}
				wantList(t, "updates", slices.Sorted(slices.Values(r.provider.TakeCalls("update"))), want...)
			})
		})
	}
}

// Invariant 6: the observed generation is the one that the provider has taken
// over, also after a restart.
func TestObservedGenerationWaitsForTheUpdate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.end()
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		r.provider.Script(func(s *nodetest.Script) {
			s.OnUpdate = func(context.Context, *corev1.Pod) error { return errors.New("cannot") }
		})
		r.start()
		pass(time.Minute)
		r.provider.ChangePod("web", func(p *corev1.Pod) { p.Status.Message = "news" })
		pass(time.Minute)
		want(t, "message", r.api.Pod("web").Status.Message, "news")
		want(t, "observed generation", r.api.Pod("web").Status.ObservedGeneration, 1)
		r.provider.Script(func(s *nodetest.Script) { s.OnUpdate = nil })
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
			r.provider.Forget("web")
			r.start()
		},
		"after a restart, polled": func(r *rig) {
			r.end()
			r.handler = r.provider.Polled()
			r.provider.Forget("web")
			r.start()
		},
		"meanwhile, polled": func(r *rig) {
			r.end()
			r.handler = r.provider.Polled()
			r.start()
			r.provider.Forget("web")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.startWith(aPod("web"))
				r.provider.TakeCalls()
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
				wantList(t, "calls", r.provider.TakeCalls("create", "update", "delete"))
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
				r.startWith(aPod("web"))
				prepare(r)
				r.provider.TakeCalls()
				r.provider.Forget("web")
				pass(4 * time.Minute)
				status := r.api.Pod("web").Status
				want(t, "phase, reason", []string{string(status.Phase), status.Reason}, []string{"Failed", "NotFound"})
				want(t, "questions", len(r.provider.TakeCalls("get")), 5)
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
				r.provider.Script(func(s *nodetest.Script) { s.List = list })
				r.start()
				r.api.AddPod(aPod("web"))
				r.api.AddPod(aPod("other"))
				pass(time.Minute)
				r.provider.TakeCalls()
				pass(time.Hour)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				calls := r.provider.TakeCalls()
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
		r.handler = r.provider.Polled()
		r.startWith(aPod("web"))
		r.provider.TakeCalls()
		for range 10 {
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(*corev1.Pod) *corev1.Pod { return nil } })
			pass(10 * time.Second) // two rounds
			r.provider.Script(func(s *nodetest.Script) { s.Show = nil })
			pass(5 * time.Second)
		}
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
	})
}

// Invariant 8: what a provider notifies before the caches have synced counts,
// and an end that it notifies and then forgets is how the pod ended.
func TestNotifiedBeforeTheCachesHaveSynced(t *testing.T) {
	for _, uid := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.startWith(aPod("job"))
			r.end()
			ended := r.api.Pod("job")
			ended.Status = nodetest.StatusOf(ended, corev1.PodSucceeded)
			if !uid {
				ended.UID = ""
			}
			r.provider.Forget("job")
			r.handler = earlyWord{r.provider.Notifying(), []*corev1.Pod{ended, aPod("nobody"), {}, nil}}
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
		r.startWith(aPod("job"))
		r.end()
		ended := r.api.Pod("job")
		ended.Status = nodetest.StatusOf(ended, corev1.PodSucceeded)
		r.provider.Script(func(s *nodetest.Script) { s.List = func() []*corev1.Pod { return []*corev1.Pod{r.api.Pod("job")} } })
		r.provider.Forget("job")
		r.handler = earlyWord{r.provider.Notifying(), []*corev1.Pod{ended}}
		r.start()
		pass(time.Second)
		want(t, "phase", r.phase("job"), corev1.PodSucceeded)
	})
}

// earlyWord notifies of pods within NotifyPods.
type earlyWord struct {
	nodetest.Notifying
	pods []*corev1.Pod
}

func (e earlyWord) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	e.Notifying.NotifyPods(ctx, notify)
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
		r.handler = earlyWord{r.provider.Notifying(), []*corev1.Pod{aPod("web")}}
		r.api.AddPod(aPod("web"))
		r.start()
		pass(time.Second)
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
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
		r.provider.TakeCalls()
		for _, name := range []string{"gone", "theirs", ""} {
			pod := aPod(name)
			pod.Status.Phase = corev1.PodRunning
			r.provider.Notify(pod)
		}
		r.provider.Notify(nil)
		pass(time.Minute)
		want(t, "records", r.pc.Pods(), 0)
		wantList(t, "writes", r.api.Written())
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
		notify := r.provider.Notifier()
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
		"polled":       func(r *rig) { r.handler = r.provider.Polled() },
		"keyed by UID": func(r *rig) { r.handler = r.provider.ByUID() },
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
						p.Status = nodetest.StatusOf(p, corev1.PodPending)
						p.Status.StartTime = ptr.To(metav1.Now())
					})
					r.provider.ChangePod(name, func(p *corev1.Pod) { p.Status = nodetest.StatusOf(p, corev1.PodPending) })
				}
				r.end()
				r.provider.Forget("gone")
				for _, name := range []string{"web", "gone"} {
					r.api.ChangePod(name, func(p *corev1.Pod) {
						p.Status = nodetest.StatusOf(p, corev1.PodPending)
						p.Status.StartTime = ptr.To(metav1.Now())
					})
				}
				empty := errdefs.NotFound("no pods here yet")
				r.provider.Script(func(s *nodetest.Script) {
					s.OnGet = func(string) error { return empty }
					s.OnStatus = s.OnGet
					s.List = func() []*corev1.Pod { return nil }
				})
				r.provider.TakeCalls()
				r.start()
				fresh := r.api.AddPod(aPod("new")).UID
				pass(30 * time.Second)
				wantList(t, "creates while nothing is known", r.provider.TakeCalls("create"), "create new "+string(fresh))
				r.provider.Script(func(s *nodetest.Script) { s.OnGet, s.OnStatus, s.List = nil, nil, nil })
				pass(2 * time.Minute)
				wantList(t, "creates", r.provider.TakeCalls("create"), "create gone "+string(r.api.Pod("gone").UID))
				want(t, "phase of the pod that was held", r.phase("web"), corev1.PodPending)
				want(t, "phase of the pod that was lost", r.phase("gone"), corev1.PodRunning)
				want(t, "warnings", len(slices.DeleteFunc(r.events.recorded(), func(e string) bool { return !strings.HasPrefix(e, "Warning ProviderMissing") })), 2)
			})
		})
	}
}

// Invariants 2 and 4: the same holds for one of which the provider has reported why it does
// not run yet. It does not leave the API before the provider was asked to end it.
func TestPendingPodWithAReasonIsNotCreatedTwice(t *testing.T) {
	for name, change := range map[string]func(*corev1.PodStatus){
		"of the pod": func(s *corev1.PodStatus) { s.Reason = "Queued" },
		"of a container": func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State.Waiting.Reason, s.ContainerStatuses[0].Started = reasonConfigError, ptr.To(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, r *rig) {
				var uids []string
				for _, name := range []string{"web", "deleted"} {
					pod := r.api.AddPod(aPod(name, pending, func(p *corev1.Pod) { change(&p.Status) }))
					uids = append(uids, string(pod.UID))
				}
				r.start()
				pass(30 * time.Second)
				r.api.DeletePod("deleted")
				pass(time.Second)
				wantList(t, "calls while nothing is known", r.provider.TakeCalls("create", "delete"), "delete deleted "+uids[1]+" grace 30")
				pass(2 * time.Minute)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+uids[0])
			})
		})
	}
}

// Invariant 1: a provider that goes by names may list an old pod beside ours, which runs:
// by their name the provider would delete ours.
func TestListWithTwoPodsOfOneName(t *testing.T) {
	for _, oldFirst := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.handler = r.provider.Polled()
			r.start()
			for _, name := range []string{"a", "b", "c"} {
				r.api.AddPod(aPod(name))
			}
			pass(time.Minute)
			r.end()
			r.provider.TakeCalls()
			ours := r.provider.Pod("a")
			old := ours.DeepCopy()
			old.UID, old.Status = "x", nodetest.StatusOf(old, corev1.PodSucceeded)
			shown := []*corev1.Pod{r.provider.Pod("b"), r.provider.Pod("c"), ours, old}
			if oldFirst {
				shown = []*corev1.Pod{r.provider.Pod("b"), r.provider.Pod("c"), old, ours}
			}
			r.provider.Script(func(s *nodetest.Script) { s.List = func() []*corev1.Pod { return shown } })
			r.start()
			pass(10 * time.Minute)
			wantList(t, "deletes", r.provider.TakeCalls("delete"))
			want(t, "phase", r.phase("a"), corev1.PodRunning)
		})
	}
}
