package podlifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// A pod's life, with the calls and writes that it takes and no more.
func TestLifeOfAPod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.provider.TakeCalls()
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		uid := string(r.api.Pod("web").UID)
		wantList(t, "calls", r.provider.TakeCalls(), "get web", "create web "+uid)
		wantList(t, "writes", r.api.Written(), "patch pods/status web")
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		wantList(t, "events", r.events.recorded(), "Normal ProviderCreateSuccess: Create pod in provider successfully")

		r.api.DeletePod("web")
		synctest.Wait()
		wantList(t, "calls", r.provider.TakeCalls(), "delete web "+uid+" grace 30")
		wantList(t, "writes", r.api.Written(), "patch pods/status web", "delete pods web")
		want(t, "pod", r.api.Pod("web"), nil)
		wantList(t, "events", r.events.recorded(), "Normal ProviderDeleteSuccess: Delete pod in provider successfully")
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
		want(t, "records", r.pc.Pods(), 0)
	})
}

// replace deletes a pod at once and adds another of its name.
func (r *rig) replace(name string) (old, replacement types.UID) {
	r.t.Helper()
	old = r.api.Pod(name).UID
	r.api.DeletePod(name, 0)
	return old, r.api.AddPod(aPod(name)).UID
}

// Invariant 1: the old pod is deleted in the provider before the new one of its
// name is created.
func TestRecreatedPod(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"notified":     func(*rig) {},
		"polled":       func(r *rig) { r.handler = r.provider.Polled() },
		"keyed by UID": func(r *rig) { r.handler = r.provider.ByUID() },
		"UIDs not kept": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p } })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				prepare(r)
				r.startWith(aPod("web"))
				r.provider.TakeCalls()
				old, replacement := r.replace("web")
				pass(time.Second)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"),
					"delete web "+string(old)+" grace 30", "create web "+string(replacement))
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				want(t, "held", len(r.provider.Holds("web")), 1)
			})
		})
	}
}

// Invariant 1: the new pod waits until the old one has stopped.
func TestRecreatedPodWaitsForTheOldOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.provider.TakeCalls()
		_, replacement := r.replace("web")
		pass(5 * time.Minute)
		kills := r.provider.TakeCalls("create", "delete")
		if len(kills) < 5 || len(kills) > 6 || !strings.HasSuffix(kills[0], "grace 30") || !strings.HasSuffix(kills[1], "grace 0") {
			t.Errorf("calls in 5 minutes: %q, want a stop, and from the end of the grace period one kill a minute", kills)
		}
		want(t, "created", slices.ContainsFunc(kills, func(c string) bool { return c[:6] == "create" }), false)
		r.provider.SetPhase("web", corev1.PodFailed) // the old one, which the provider goes on to show
		synctest.Wait()
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(replacement))
		want(t, "the old one is not the new one's end", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 1: providers may go on showing a pod that they have stopped, until
// the next of its name takes its place. That neither spins nor stops the next.
func TestRecreatedPodThoughTheOldOneIsStillShown(t *testing.T) {
	for _, keepsUIDs := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *rig) {
			r.handler = r.provider.Polled()
			r.startWith(aPod("web"))
			r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
			if !keepsUIDs {
				r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p } })
			}
			r.provider.Script(func(s *nodetest.Script) {
				s.OnDelete = func(context.Context, *corev1.Pod) error {
					r.provider.SetPhase("web", corev1.PodFailed)
					return nil
				}
			})
			r.provider.TakeCalls()
			old, replacement := r.replace("web")
			pass(10 * time.Second)
			wantList(t, "calls", r.provider.TakeCalls("create", "delete"),
				"delete web "+string(old)+" grace 30", "create web "+string(replacement))
			want(t, "phase", r.phase("web"), corev1.PodRunning)
		})
	}
}

// Invariant 1: what is reported of the old pod, late and without a UID, is not taken
// for a word on the new one.
func TestLateEchoOfTheOldPod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		block := make(chan struct{})
		r.provider.Script(func(s *nodetest.Script) { s.OnGet = func(string) error { <-block; return nil } })
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { <-block; return nil }
		})
		_, replacement := r.replace("web")
		synctest.Wait()
		echo := aPod("web")
		echo.Status = nodetest.StatusOf(echo, corev1.PodFailed)
		r.provider.Notify(echo)
		close(block)
		pass(time.Second)
		want(t, "held", r.provider.Holds("web"), []types.UID{replacement})
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		echo.UID = "uid-0"
		r.provider.Notify(echo)
		synctest.Wait()
		want(t, "phase after an echo with its UID", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 1: a pod that was replaced while nobody watched is the old one, by
// its UID where the provider keeps UIDs, else by its age.
func TestReplacedWhileDown(t *testing.T) {
	for name, prepare := range map[string]func(r *rig){
		"UIDs kept":    func(*rig) {},
		"polled":       func(r *rig) { r.handler = r.provider.Polled() },
		"keyed by UID": func(r *rig) { r.handler = r.provider.ByUID() },
		"UIDs not kept": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p } })
		},
		"UIDs of its own": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) {
				s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = "own-" + p.UID; return p }
			})
		},
		"no list": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errdefs.AsUnavailable(errors.New("away")) } })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				prepare(r)
				r.start()
				r.api.AddPod(aPod("other"))
				r.api.AddPod(aPod("web"))
				synctest.Wait()
				r.end()
				pass(time.Hour)
				_, replacement := r.replace("web")
				r.provider.TakeCalls()
				r.start()
				pass(time.Minute)
				calls := r.provider.TakeCalls("create", "delete")
				if len(calls) != 2 || calls[0][:10] != "delete web" || calls[1] != "create web "+string(replacement) {
					t.Errorf("calls: %q, want one delete, then one create", calls)
				}
				want(t, "held", r.provider.Holds("web"), []types.UID{replacement})
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				// A provider's own UIDs are not mistaken for ours ever after.
				pass(time.Hour)
				wantList(t, "calls later", r.provider.TakeCalls("create", "delete"))
				want(t, "the other pod", r.phase("other"), corev1.PodRunning)
			})
		})
	}
}

// Invariant 1: what a provider that goes by UIDs still holds of pods that went while
// nobody watched ends before another one of their name is created, orphans or not.
func TestNamesakesGoFirst(t *testing.T) {
	for name, broken := range map[string]bool{"listed at the start": false, "listed later": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.ByUID()
				for _, uid := range []types.UID{"u0", "u1"} {
					r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = uid }), corev1.PodRunning)
				}
				if broken {
					r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errdefs.AsUnavailable(errors.New("away")) } })
				}
				uid := r.startWith(aPod("web")).UID
				if broken {
					wantList(t, "calls before there was a list", r.provider.TakeCalls("create", "delete"))
					r.provider.Script(func(s *nodetest.Script) { s.OnList = nil })
				}
				pass(2 * time.Second)
				calls := r.provider.TakeCalls("create", "delete")
				slices.Sort(calls[:min(2, len(calls))]) // the older ones end in any order
				wantList(t, "calls", calls, "delete web u0 grace 30", "delete web u1 grace 30", "create web "+string(uid))
				want(t, "phase", r.phase("web"), corev1.PodRunning)
				pass(time.Hour)
				wantList(t, "calls later", r.provider.TakeCalls("create", "delete"))
			})
		})
	}
}

// Invariant 6: a pod that was refused for good is not created after all, because an
// older one of its name is still shown, and goes.
func TestRefusedWhileItsPredecessorIsShown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		for _, uid := range []types.UID{"u1", "u2", "u3"} {
			r.pc.backend.(*nameBackend).uids.matched(uid)
		}
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error {
				r.provider.Script(func(s *nodetest.Script) { s.OnCreate = nil })
				r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = "u0" }), corev1.PodRunning)
				return errdefs.AsPermanent(errors.New("refused"))
			}
		})
		uid := r.api.AddPod(aPod("web", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })).UID
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(uid), "delete web u0 grace 30")
		want(t, "phase", r.phase("web"), corev1.PodFailed)
	})
}

// Invariant 3: a cache that is behind may show the older of two pods of one name,
// and the provider hold the newer. Which of them is gone the API server says.
func TestTheNewerNamesakeIsNoOrphan(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.ByUID()
		behind := r.api.AddPod(aPod("web"))
		newer := aPod("web", func(p *corev1.Pod) { p.UID = "newer" })
		fakeapi.React(&r.api.Fake, "get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, newer, nil })
		r.provider.Hold(newer, corev1.PodRunning)
		r.start()
		pass(time.Hour)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
		r.api.DeletePod(behind.Name, 0)
		r.api.AddPod(newer)
		pass(time.Minute)
		wantList(t, "calls for the newer", r.provider.TakeCalls("create", "delete"))
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 1: from the UIDs of an old pod, which are the provider's own, it does
// not follow that it keeps ours.
func TestForeignUIDsOfAnOldPod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = "own-" + p.UID; return p }
		})
		r.startWith(aPod("web"))
		r.end()
		pass(time.Hour)
		r.replace("web")
		r.start()
		pass(12 * time.Second) // it is looked at while it dies
		r.provider.Forget("web")
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
		want(t, "creates", len(r.provider.TakeCalls("create")), 2)
	})
}

// Invariant 2: after a failed CreatePod the provider is asked, and not requested
// again to create what it holds.
func TestCreateThatFailedHalfway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(_ context.Context, pod *corev1.Pod) error {
				r.provider.Hold(pod, corev1.PodRunning)
				return errors.New("timeout")
			}
		})
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Hour)
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 2: a GetPod that fails is not a GetPod that found nothing.
func TestGetPodThatFails(t *testing.T) {
	for name, failing := range map[string]func(*rig){
		"unavailable": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) {
				s.OnGet = func(string) error { return errdefs.AsUnavailable(errors.New("away")) }
			})
		},
		"panic": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.OnGet = func(string) error { panic("boom") } })
			r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errors.New("away") } })
		},
		"unclassified, and no list": func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.OnGet = func(string) error { return errors.New("away") } })
			r.provider.Script(func(s *nodetest.Script) { s.OnList = func() error { return errors.New("away") } })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				failing(r)
				r.api.AddPod(aPod("web"))
				pass(time.Hour)
				wantList(t, "creates", r.provider.TakeCalls("create"))
				r.provider.Script(func(s *nodetest.Script) { s.OnGet, s.OnList = nil, nil })
				pass(time.Minute)
				want(t, "creates when it can tell", len(r.provider.TakeCalls("create")), 1)
			})
		})
	}
}

// Invariant 2: an error without a class, and a list without the pod, is how many
// providers say that they do not hold it.
func TestGetPodThatSaysNoInItsOwnWords(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(name string) error {
				if len(r.provider.Holds(name)) == 0 {
					return errors.New("no such thing here")
				}
				return nil
			}
		})
		r.startWith(aPod("web"))
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariants 1 and 2: nor does it hold a pod by its UID because it holds another one of
// its name.
func TestGetPodByUIDThatSaysNoInItsOwnWords(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.ByUID()
		r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = "u0" }), corev1.PodRunning)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(name string) error {
				if !slices.Contains(r.provider.Holds(name), r.api.Pod(name).UID) {
					return errors.New("no such thing here")
				}
				return nil
			}
		})
		r.start(func(cfg *Config) { cfg.KeepOrphans = true })
		uid := r.api.AddPod(aPod("web")).UID
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web u0 grace 30", "create web "+string(uid))
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 9: a pod that waits for an older one of its name, which does not end, says
// what it waits for.
func TestPredecessorThatCannotBeDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnDelete = func(context.Context, *corev1.Pod) error { return errors.New("refused") }
		})
		r.events.recorded()
		var old, replacement types.UID
		r.api.Gap(func() { old, replacement = r.replace("web") }) // so that the old one's end is not seen alone
		pass(time.Minute)
		about := r.events.about()
		wantList(t, "pods with events", about, string(replacement))
		wantList(t, "events", r.events.recorded(),
			"Warning ProviderDeleteFailed: an older pod of this name has to end first ("+string(old)+"): refused")
	})
}

// Invariant 2: with the pod in the list, such an error means nothing.
func TestGetPodThatFailsForAPodInTheList(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		pod := r.api.AddPod(aPod("web", func(p *corev1.Pod) { p.UID = "u1" }))
		r.end()
		r.provider.TakeCalls()
		r.provider.Hold(pod, "") // without a status, so that it has to be asked for
		r.provider.Script(func(s *nodetest.Script) { s.OnGet = func(string) error { return errors.New("cannot read it") } })
		r.start()
		pass(time.Hour)
		wantList(t, "creates", r.provider.TakeCalls("create"))
	})
}

// Invariant 2: a list that began before a question was asked cannot answer it.
func TestListThatBeganTooEarly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		slow := true
		r.provider.Script(func(s *nodetest.Script) {
			s.List = func() []*corev1.Pod {
				now := r.provider.Pods()
				if slow {
					slow = false
					pass(10 * time.Second)
				}
				return now
			}
		})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnGet = func(name string) error {
				if len(r.provider.Holds(name)) == 0 {
					return errdefs.NotFound("none")
				}
				return errors.New("cannot read it")
			}
		})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(_ context.Context, pod *corev1.Pod) error {
				r.provider.Hold(pod, corev1.PodRunning)
				return errors.New("timeout")
			}
		})
		pass(6 * time.Second) // the first round has begun
		r.api.AddPod(aPod("web"))
		pass(time.Hour)
		want(t, "creates", len(r.provider.TakeCalls("create")), 1)
	})
}

// The provider's methods are called one at a time for each pod, with different
// pods at the same time.
func TestCallsOfOnePodFollowEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inside := map[string]int{}
		var mu sync.Mutex
		var most, total int
		slow := func(_ context.Context, pod *corev1.Pod) error {
			mu.Lock()
			inside[pod.Name]++
			if inside[pod.Name] > 1 {
				t.Errorf("two calls at once for %s", pod.Name)
			}
			total++
			most = max(most, total)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			inside[pod.Name]--
			total--
			mu.Unlock()
			return nil
		}
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate, s.OnUpdate, s.OnDelete = slow, slow, slow })
		r.start()
		r.api.AddPod(aPod("a"))
		r.api.AddPod(aPod("b"))
		for range 10 {
			pass(300 * time.Millisecond)
			r.api.ChangePod("a", func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "n", time.Now().String()) })
		}
		r.api.DeletePod("a")
		pass(time.Minute)
		want(t, "calls at once", most, 2)
		want(t, "pod", r.api.Pod("a"), nil)
	})
}

// A provider that shows pods which it was given since it started under our UIDs, and
// others under its own, keeps them all: what it shows of one pod says nothing of others.
func TestUIDsOfSomePods(t *testing.T) {
	bothKinds(t, func(t *testing.T, r *rig) {
		r.start()
		for _, name := range []string{"old-a", "old-b"} {
			r.api.AddPod(aPod(name))
		}
		pass(time.Minute)
		r.end()
		r.provider.Script(func(s *nodetest.Script) { // it makes the objects of these from what its backend has
			s.Show = func(p *corev1.Pod) *corev1.Pod {
				if strings.HasPrefix(p.Name, "old") {
					p.UID = "theirs-" + p.UID
				}
				return p
			}
		})
		r.start()
		r.provider.TakeCalls()
		for _, name := range []string{"new-a", "new-b", "new-c", "new-d"} {
			r.api.AddPod(aPod(name))
		}
		pass(10 * time.Minute)
		wantList(t, "deletes", r.provider.TakeCalls("delete"))
		for _, name := range []string{"old-a", "old-b", "new-a", "new-d"} {
			want(t, "phase of "+name, r.phase(name), corev1.PodRunning)
		}
		r.provider.SetPhase("old-a", corev1.PodSucceeded)
		pass(10 * time.Minute)
		want(t, "phase of one that has ended", r.phase("old-a"), corev1.PodSucceeded)
	})
}

// The last words on an old pod are not taken for those on the new one of its name,
// whose creation is under way, although the provider has shown no other pod.
func TestLastWordsWithinTheNextCreate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		last := r.api.Pod("web").DeepCopy()
		last.Status = nodetest.StatusOf(last, corev1.PodFailed)
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { r.provider.Notify(last); return nil }
		})
		r.replace("web")
		pass(time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}
