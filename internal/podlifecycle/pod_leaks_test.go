package podlifecycle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// Invariant 3: a pod that went from the API in a gap of the watch is deleted in
// the provider.
func TestGoneInAWatchGap(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.api.AddPod(aPod("web"))
		r.api.AddPod(aPod("stays"))
		synctest.Wait()
		uid := string(r.api.Pod("web").UID)
		r.provider.TakeCalls()
		r.api.Gap(func() { r.api.DeletePod("web", 0) })
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web "+uid+" grace 30")
		want(t, "the other pod", r.phase("stays"), corev1.PodRunning)
	})
}

// Invariant 3: a pod that went from the API just when a worker had read it, for the
// first time, is not created.
func TestGoneWhileItIsFirstLookedAt(t *testing.T) {
	// The first look is the watch's, the second that of the worker which finds that it
	// is to be created, the third of the one which creates it, the last just before.
	for _, look := range []int32{2, 3, 4} {
		bubble(t, func(t *testing.T, r *rig) {
			var looks atomic.Int32
			r.start(func(cfg *Config) {
				cfg.PodEventFilter = func(context.Context, *corev1.Pod) bool {
					if looks.Add(1) == look {
						r.api.DeletePod("web", 0)
						time.Sleep(time.Second)
					}
					return true
				}
			})
			r.api.AddPod(aPod("web"))
			pass(5 * time.Minute)
			wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
			want(t, "pods in the provider", len(r.provider.Holds("web")), 0)
			want(t, "names that are remembered", r.pc.Pods(), 0)
		})
	}
}

// Invariant 3, and 1: in the gap another pod took the name.
func TestReplacedInAWatchGap(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.TakeCalls()
		var old, replacement types.UID
		r.api.Gap(func() { old, replacement = r.replace("web") })
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"),
			"delete web "+string(old)+" grace 30", "create web "+string(replacement))
	})
}

// Invariant 3: a pod that went while we were down is deleted once it was seen
// three times without its counterpart.
func TestGoneWhileDown(t *testing.T) {
	for name, handler := range map[string]func(*nodetest.Backend) Provider{
		"polled":           func(f *nodetest.Backend) Provider { return f.Polled() },
		"notified":         func(f *nodetest.Backend) Provider { return f.Notifying() },
		"keyed by UID":     func(f *nodetest.Backend) Provider { return f.ByUID() },
		"notified at once": func(f *nodetest.Backend) Provider { return eager{f.Notifying()} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = handler(r.provider)
				r.provider.Hold(aPod("gone", func(p *corev1.Pod) { p.UID = "u1" }), corev1.PodRunning)
				r.start()
				pass(14 * time.Second)
				wantList(t, "deletes after two lists", r.provider.TakeCalls("delete"))
				pass(2 * time.Second)
				wantList(t, "deletes after three lists", r.provider.TakeCalls("delete"), "delete gone u1 grace 30")
				pass(time.Hour)
				wantList(t, "deletes later", r.provider.TakeCalls("delete"))
				want(t, "records", r.pc.Pods(), 0)
			})
		})
	}
}

// eager notifies of all its pods within NotifyPods.
type eager struct{ nodetest.Notifying }

func (e eager) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	e.Notifying.NotifyPods(ctx, notify)
	for _, pod := range e.Backend.Pods() {
		notify(pod)
	}
}

// Invariant 3: a provider that goes by UIDs can hold an old pod beside the new
// one of its name. It does not leak, and the new one is not touched.
func TestOldPodBesideTheNewOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.ByUID()
		uid := r.startWith(aPod("web")).UID
		r.provider.TakeCalls()
		r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = "u0" }), corev1.PodRunning)
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web u0 grace 30")
		want(t, "held", r.provider.Holds("web"), []types.UID{uid})
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariant 3: while the API server was asked about an orphan, a new pod may have
// taken its name, which is all that some providers go by.
func TestOrphanWhoseNameIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID, p.CreationTimestamp = "u0", metav1.Now() }), corev1.PodRunning)
		var uid types.UID
		meanwhile := sync.OnceFunc(func() {
			time.Sleep(2 * time.Minute) // so that their ages tell them apart
			uid = r.api.AddPod(aPod("web")).UID
			time.Sleep(time.Minute)
		})
		r.start(func(cfg *Config) { cfg.PodClient = late{cfg.PodClient, meanwhile} })
		pass(10 * time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web u0 grace 30", "create web "+string(uid))
		want(t, "held", r.provider.Holds("web"), []types.UID{uid})
	})
}

// Invariants 1 and 3: a pod that takes an orphan's name while the orphan is being
// deleted waits for the end of that: it is not met by it.
func TestNewPodWhileAnOrphanOfItsNameIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*rig)
		age     time.Duration // of the orphan
	}{
		"polled":                   {prepare: func(r *rig) { r.handler = r.provider.Polled() }},
		"polled, known by its age": {prepare: func(r *rig) { r.handler = r.provider.Polled() }, age: time.Hour},
		"notified":                 {prepare: func(*rig) {}},
		"keyed by UID":             {prepare: func(r *rig) { r.handler = r.provider.ByUID() }},
		"UIDs not kept": {prepare: func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p } })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				tc.prepare(r)
				r.provider.Script(func(s *nodetest.Script) {
					s.OnDelete = func(context.Context, *corev1.Pod) error {
						r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
						// The backend is slow to answer, this once; and answers between two lists:
						// one under way may show the pod still, which is deleted once more then.
						time.Sleep(61 * time.Second)
						return nil
					}
				})
				r.provider.Hold(aPod("web", func(p *corev1.Pod) {
					p.UID, p.CreationTimestamp = "u0", metav1.NewTime(time.Now().Add(-tc.age))
				}), corev1.PodRunning)
				r.start()
				pass(16 * time.Second)
				want(t, "deletes after three lists", len(r.provider.TakeCalls("create", "delete")), 1)
				uid := r.api.AddPod(aPod("web")).UID
				pass(30 * time.Second)
				wantList(t, "calls meanwhile", r.provider.TakeCalls("create", "delete"))
				pass(time.Hour)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "create web "+string(uid))
				want(t, "held", r.provider.Holds("web"), []types.UID{uid})
				want(t, "phase", r.phase("web"), corev1.PodRunning)
			})
		})
	}
}

// Invariants 1 and 3: an orphan that takes its time to end is waited for by a pod
// that takes its name, although nothing but that the API had lost it distinguishes them.
func TestNewPodWhileAnOrphanOfItsNameEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.Show = func(p *corev1.Pod) *corev1.Pod { p.UID = ""; return p }
		})
		r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Now() }), corev1.PodRunning)
		r.start()
		pass(16 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web  grace 30")
		uid := r.api.AddPod(aPod("web")).UID
		pass(25 * time.Second)
		wantList(t, "calls while it ends", r.provider.TakeCalls("create", "delete"))
		pass(10 * time.Second)
		wantList(t, "calls at the end of its grace period", r.provider.TakeCalls("create", "delete"), "delete web  grace 0")
		r.provider.SetPhase("web", corev1.PodFailed)
		r.provider.Forget("web")
		pass(time.Minute)
		wantList(t, "calls when it has ended", r.provider.TakeCalls("create", "delete"), "create web "+string(uid))
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// Invariants 1 and 3: an orphan beside a pod of its name ends, regardless of what is done about that
// one, however long that takes, and where that fails.
func TestOrphanBesideABusyPod(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.ByUID()
		uid := r.startWith(aPod("web")).UID
		r.provider.TakeCalls()
		r.provider.Script(func(s *nodetest.Script) {
			s.OnUpdate = func(context.Context, *corev1.Pod) error {
				r.provider.Script(func(s *nodetest.Script) {
					s.OnUpdate = func(context.Context, *corev1.Pod) error { return errors.New("refused") }
				})
				time.Sleep(time.Minute)
				return errors.New("refused")
			}
		})
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = "u0" }), corev1.PodRunning)
		pass(30 * time.Second)
		wantList(t, "calls meanwhile", r.provider.TakeCalls("delete"), "delete web u0 grace 30")
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"))
		want(t, "held", r.provider.Holds("web"), []types.UID{uid})
	})
}

// Invariants 3 and 5: an orphan that cannot be deleted is tried again like any pod,
// and does not hold up the pod beside it.
func TestOrphanThatCannotBeDeleted(t *testing.T) {
	refuse := func(_ context.Context, p *corev1.Pod) error {
		if p.UID == "u0" {
			return errors.New("refused")
		}
		return nil
	}
	for name, beside := range map[string]bool{"alone": false, "beside a pod of its name": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.ByUID()
				r.start()
				r.provider.Script(func(s *nodetest.Script) { s.OnDelete = refuse })
				if beside {
					r.api.AddPod(aPod("web"))
					synctest.Wait()
				}
				r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = "u0" }), corev1.PodRunning)
				pass(time.Hour)
				if n := len(r.provider.TakeCalls("delete web u0")); n < 50 || n > 80 {
					t.Errorf("deleted %d times in an hour, want the delays of retries", n)
				}
				if beside {
					uid := r.api.Pod("web").UID
					r.api.DeletePod("web")
					synctest.Wait()
					want(t, "pod", r.api.Pod("web"), nil)
					wantList(t, "calls", r.provider.TakeCalls("delete web "+string(uid)), "delete web "+string(uid)+" grace 30")
				}
				r.provider.Script(func(s *nodetest.Script) { s.OnDelete = nil })
				pass(3 * time.Minute)
				wantList(t, "deletes", r.provider.TakeCalls("delete"), "delete web u0 grace 30")
				want(t, "held", len(r.provider.Holds("web")), 0)
				want(t, "names that are remembered", r.pc.Pods(), 0)
			})
		})
	}
}

// late is a client that hears late of a pod that it asked for.
type late struct {
	corev1client.PodsGetter
	meanwhile func()
}

func (l late) Pods(namespace string) corev1client.PodInterface {
	return latePods{l.PodsGetter.Pods(namespace), l.meanwhile}
}

type latePods struct {
	corev1client.PodInterface
	meanwhile func()
}

func (l latePods) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Pod, error) {
	pod, err := l.PodInterface.Get(ctx, name, options)
	l.meanwhile()
	return pod, err
}

// Invariant 3: orphan clean-up can be turned off.
func TestOrphanCleanUpOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.provider.Hold(aPod("gone", func(p *corev1.Pod) { p.UID = "u1" }), corev1.PodRunning)
		r.start(func(cfg *Config) { cfg.KeepOrphans = true })
		pass(time.Hour)
		wantList(t, "deletes", r.provider.TakeCalls("delete"))
	})
}

// Invariant 3: nothing is an orphan by mistake.
func TestNoOrphans(t *testing.T) {
	others := func(p *corev1.Pod) { p.UID, p.Spec.NodeName = "u1", "another" }
	notOthers := func(cfg *Config) {
		cfg.PodEventFilter = func(_ context.Context, p *corev1.Pod) bool { return p.Spec.NodeName == "vk" }
	}
	for name, prepare := range map[string]func(r *rig) []func(*Config){
		"another node's, by the filter": func(r *rig) []func(*Config) {
			r.provider.Hold(aPod("theirs", others), corev1.PodRunning)
			return []func(*Config){notOthers}
		},
		"another node's, in the same cache": func(r *rig) []func(*Config) {
			r.provider.Script(func(s *nodetest.Script) { s.Show = func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = ""; return p } })
			r.provider.Hold(r.api.AddPod(aPod("theirs", others)), corev1.PodRunning)
			return []func(*Config){notOthers}
		},
		"entries that name no pod": func(r *rig) []func(*Config) {
			r.provider.Script(func(s *nodetest.Script) {
				s.List = func() []*corev1.Pod { return []*corev1.Pod{nil, {}, {Spec: corev1.PodSpec{NodeName: "vk"}}} }
			})
			return nil
		},
		"the API cannot be asked": func(r *rig) []func(*Config) {
			r.api.Fail("get pods", apierrors.NewServiceUnavailable("away"))
			r.provider.Hold(aPod("gone"), corev1.PodRunning)
			return nil
		},
		"may not be read, and may be another node's": func(r *rig) []func(*Config) {
			r.api.Fail("get pods", apierrors.NewForbidden(fakeapi.Pods.GroupResource(), "gone", errors.New("no")))
			r.provider.Hold(aPod("gone", func(p *corev1.Pod) { p.Spec.NodeName = "" }), corev1.PodRunning)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start(prepare(r)...)
				pass(time.Hour)
				wantList(t, "deletes", r.provider.TakeCalls("delete"))
			})
		})
	}
}

// Invariant 3: to a node with its own identity the API server says of a pod that
// is gone that it may not be read.
func TestOrphanThatMayNotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.api.Fail("get pods", apierrors.NewForbidden(fakeapi.Pods.GroupResource(), "gone", errors.New("no relationship found between node and this object")))
		r.provider.Hold(aPod("gone"), corev1.PodRunning)
		r.start()
		pass(10 * time.Minute)
		wantList(t, "deletes", r.provider.TakeCalls("delete"), "delete gone  grace 30")
	})
}

// Invariant 3: the API server has the last word on what an orphan is; it is not
// asked all the time.
func TestOrphanIsInTheAPI(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.api.Gap(func() {
			// The cache does not know it: the watches that would tell are cut, and
			// a new list is refused.
			r.api.Fail("list pods", apierrors.NewServiceUnavailable("away"))
			r.provider.Hold(r.api.AddPod(aPod("new")), corev1.PodRunning)
		})
		pass(4 * time.Minute)
		wantList(t, "deletes", r.provider.TakeCalls("delete"))
		gets := 0
		for _, action := range r.api.Actions() {
			if action.Matches("get", "pods") {
				gets++
			}
		}
		want(t, "questions", gets, 1)
	})
}

// Invariant 3: no delete, and nothing else, before the caches have synced.
func TestNothingBeforeTheCachesHaveSynced(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps", "secrets", "services"} {
		t.Run(resource, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				uid := r.api.AddPod(aPod("web")).UID
				r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID = uid }), corev1.PodRunning)
				r.provider.Hold(aPod("gone"), corev1.PodRunning)
				r.api.Fail("list "+resource, apierrors.NewServiceUnavailable("away"))
				r.launch()
				pass(time.Hour)
				wantList(t, "calls", r.provider.TakeCalls(), "notify")
				select {
				case <-r.pc.Ready():
					t.Error("ready without the caches")
				default:
				}
				r.api.Fail("list "+resource, nil)
				<-r.pc.Ready()
				pass(10 * time.Second)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete", "update"))
				pass(2 * time.Minute)
				wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete gone  grace 30")
			})
		})
	}
}

// Invariant 3: a pod that was overlooked once when its deletion came is deleted
// in the provider all the same, and waited for.
func TestOverlookedPodIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.Polled()
		r.start()
		r.provider.Script(func(s *nodetest.Script) {
			s.Lingers = true
			s.Show = func(*corev1.Pod) *corev1.Pod { return nil }
		})
		r.api.AddPod(aPod("web"))
		pass(time.Second)
		r.provider.Script(func(s *nodetest.Script) { s.Show = nil })
		r.api.DeletePod("web")
		pass(20 * time.Second)
		if r.api.Pod("web") == nil {
			t.Fatal("the pod left the API though it runs")
		}
		r.provider.SetPhase("web", corev1.PodFailed)
		pass(5 * time.Second)
		want(t, "pod", r.api.Pod("web"), nil)
	})
}

// The same, where it is gone at once.
func TestOverlookedPodIsDeleted(t *testing.T) {
	for name, remove := range map[string]func(*rig){
		"gracefully": func(r *rig) { r.api.DeletePod("web") },
		"at once":    func(r *rig) { r.api.DeletePod("web", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handler = r.provider.Polled()
				r.start(func(cfg *Config) { cfg.KeepOrphans = true })
				// GetPod is behind by a moment: it does not know what was created.
				r.provider.Script(func(s *nodetest.Script) { s.Show = func(*corev1.Pod) *corev1.Pod { return nil } })
				r.api.AddPod(aPod("web"))
				pass(time.Second)
				remove(r)
				pass(time.Second)
				want(t, "deletes", len(r.provider.TakeCalls("delete")), 1)
				want(t, "held", len(r.provider.Holds("web")), 0)
				want(t, "pod", r.api.Pod("web"), nil)
			})
		})
	}
}

// Invariant 3: in a gap of the watch a pod of another node took the name.
func TestReplacedOnAnotherNodeInAWatchGap(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) {
			cfg.PodEventFilter = func(_ context.Context, p *corev1.Pod) bool { return p.Spec.NodeName == "vk" }
		})
		old := r.api.AddPod(aPod("web")).UID
		synctest.Wait()
		r.provider.TakeCalls()
		r.api.Gap(func() {
			r.api.DeletePod("web", 0)
			r.api.AddPod(aPod("web", func(p *corev1.Pod) { p.Spec.NodeName = "another" }))
		})
		pass(time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("create", "delete"), "delete web "+string(old)+" grace 30")
		want(t, "records", r.pc.Pods(), 0)
	})
}
