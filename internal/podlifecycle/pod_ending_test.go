package podlifecycle

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

func TestGraceOf(t *testing.T) {
	for name, tc := range map[string]struct {
		deletion, spec *int64
		want           time.Duration
	}{
		"the deletion's":             {ptr.To[int64](5), ptr.To[int64](60), 5 * time.Second},
		"none":                       {nil, ptr.To[int64](60), time.Minute},
		"at once, as with --force":   {ptr.To[int64](0), ptr.To[int64](60), time.Minute},
		"the spec says nothing":      {nil, nil, 30 * time.Second},
		"the spec says zero":         {nil, ptr.To[int64](0), time.Second},
		"both say zero":              {ptr.To[int64](0), ptr.To[int64](0), time.Second},
		"longer than the spec's":     {ptr.To[int64](600), ptr.To[int64](60), 10 * time.Minute},
		"negative, which is at once": {ptr.To[int64](-1), ptr.To[int64](-1), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			pod := aPod("web")
			pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = tc.deletion, tc.spec
			want(t, "grace", graceOf(pod), tc.want)
		})
	}
}

// Invariant 4: a deletion that is seen late gets its whole grace period all the same:
// the pod is asked to stop before it is killed.
func TestDeletionThatIsSeenLate(t *testing.T) {
	deleteAt := func(r *rig, at time.Time) {
		r.api.ChangePod("web", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at}, ptr.To[int64](20)
			p.Generation = 2
			p.Finalizers = []string{"example.com/late"} // or the tracker removes it
		})
	}
	for name, late := range map[string]func(*rig){
		"in a partition": func(r *rig) {
			r.api.Gap(func() {
				r.api.Fail("list pods", apierrors.NewServiceUnavailable("away"))
				deleteAt(r, time.Now().Add(20*time.Second))
			})
			pass(10 * time.Minute)
			r.api.Fail("list pods", nil)
			for range 120 { // until the informer lists again
				pass(time.Second)
				if r.api.Pod("web").Status.ObservedGeneration == 2 {
					return
				}
			}
		},
		"while no agent ran": func(r *rig) {
			r.end()
			deleteAt(r, time.Now().Add(20*time.Second))
			pass(10 * time.Minute)
			r.start()
		},
		"by a clock that is ahead": func(r *rig) { deleteAt(r, time.Now().Add(-time.Hour)); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				uid := string(r.api.AddPod(aPod("web")).UID)
				synctest.Wait()
				r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
				late(r)
				wantList(t, "calls", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 20")
				pass(time.Minute)
				wantList(t, "calls later", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
			})
		})
	}
}

// A pod with no grace period gets a second to stop.
func TestNoGraceIsASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		uid := string(r.api.AddPod(aPod("web", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) })).UID)
		synctest.Wait()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.provider.TakeCalls()
		r.api.DeletePod("web")
		pass(900 * time.Millisecond)
		wantList(t, "calls", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 1")
		pass(2 * time.Second)
		wantList(t, "calls later", r.provider.TakeCalls("delete"), "delete web "+uid+" grace 0")
	})
}

// Invariant 3: an orphan beside a pod of its name gets its grace period, too, and is
// killed at its end.
func TestOrphanBesideAPodThatDoesNotStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.ByUID()
		uid := r.startWith(aPod("web")).UID
		r.provider.TakeCalls()
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.provider.Hold(aPod("web", func(p *corev1.Pod) { p.UID, p.Spec.TerminationGracePeriodSeconds = "u0", ptr.To[int64](40) }), corev1.PodRunning)
		pass(45 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("delete"), "delete web u0 grace 40")
		pass(20 * time.Second)
		wantList(t, "calls at the end of its grace period", r.provider.TakeCalls("delete"), "delete web u0 grace 0")
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = false })
		pass(2 * time.Minute)
		wantList(t, "calls until it is gone", r.provider.TakeCalls("delete"), "delete web u0 grace 0")
		want(t, "held", r.provider.Holds("web"), []types.UID{uid})
	})
}

// Invariant 3: a pod that only a list of the API lacks is not ended before a read
// confirms that it is gone.
func TestMissingInAList(t *testing.T) {
	hide := func(r *rig) {
		// The list is of an older state, or of a restored one.
		r.api.Hide("web", true)
		r.api.Gap(func() {})
	}
	bubble(t, func(t *testing.T, r *rig) {
		r.startWith(aPod("web"))
		r.provider.TakeCalls()
		hide(r)
		pass(10 * time.Minute)
		wantList(t, "calls", r.provider.TakeCalls("delete", "create", "update"))
		r.api.Hide("web", false)
		r.api.Gap(func() {})
		pass(5 * time.Minute)
		want(t, "queue", r.pc.Syncs().Len(), 0)
		r.api.ChangePod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" })
		pass(time.Minute)
		want(t, "updates", len(r.provider.TakeCalls("update")), 1)
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.DeletePod("web")
		pass(25 * time.Second)
		want(t, "calls in the grace period", len(r.provider.TakeCalls("delete")), 1)
	})
	bubble(t, func(t *testing.T, r *rig) { // and the API server cannot be asked
		r.startWith(aPod("web"))
		r.provider.TakeCalls()
		r.api.Fail("get pods", errors.New("connection refused"))
		r.api.Gap(func() { r.api.DeletePod("web", 0) })
		pass(10 * time.Minute)
		wantList(t, "calls while it cannot be confirmed", r.provider.TakeCalls("delete"))
		r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
		r.api.Fail("get pods", nil)
		pass(65 * time.Second)
		calls := r.provider.TakeCalls("delete")
		if len(calls) == 0 || calls[0][len(calls[0])-8:] != "grace 30" {
			t.Errorf("calls: %q, want a stop first", calls)
		}
	})
}

// laggard are pods whose changes, and deletions, are notified of later than the cache has
// them, as happens for a moment with every informer.
type laggard struct {
	PodSource
	changes, lag time.Duration
}

func (l laggard) Subscribe(handler cache.ResourceEventHandler) (<-chan struct{}, func(), error) {
	return l.PodSource.Subscribe(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: handler.OnAdd,
		UpdateFunc: func(before, after any) {
			time.Sleep(l.changes)
			handler.OnUpdate(before, after)
		},
		DeleteFunc: func(obj any) {
			time.Sleep(l.lag)
			handler.OnDelete(obj)
		},
	})
}

// Invariant 3: nor is it ended between its removal from the cache and the notification
// that says why.
func TestMissingInAListBeforeTheNotification(t *testing.T) {
	start := func(r *rig) *corev1.Pod {
		r.start(func(cfg *Config) { cfg.Pods = laggard{cfg.Pods, 0, 5 * time.Second} })
		r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.provider.TakeCalls()
		return r.api.Pod("web")
	}
	bubble(t, func(t *testing.T, r *rig) {
		pod := start(r)
		r.api.Hide("web", true)
		r.api.Gap(func() {})
		pass(2 * time.Second) // client-go lists again
		if _, err := r.pc.cfg.Pods.Get(pod.Namespace, pod.Name); err == nil {
			t.Fatal("the cache has the pod: this test is about nothing")
		}
		r.pc.Syncs().Add(string(pod.UID))
		pass(10 * time.Minute)
		wantList(t, "calls about a pod that the API has", r.provider.TakeCalls("delete", "create", "update"))
	})
	bubble(t, func(t *testing.T, r *rig) { // while that of a real deletion waits, too
		pod := start(r)
		r.api.Fail("get pods", errors.New("connection refused"))
		r.api.DeletePod("web", 0)
		synctest.Wait()
		r.pc.Syncs().Add(string(pod.UID))
		pass(4 * time.Second)
		wantList(t, "calls before the notification", r.provider.TakeCalls("delete"))
		pass(2 * time.Second)
		wantList(t, "calls", r.provider.TakeCalls("delete"), "delete web "+string(pod.UID)+" grace 30")
	})
}

// rewound are pods of which one can be shown in an earlier form, as by a list of an older
// state.
type rewound struct {
	PodSource
	handler cache.ResourceEventHandler
	earlier atomic.Pointer[corev1.Pod]
}

func (p *rewound) Get(namespace, name string) (*corev1.Pod, error) {
	if pod := p.earlier.Load(); pod != nil && pod.Name == name {
		return pod, nil
	}
	return p.PodSource.Get(namespace, name)
}

func (p *rewound) Subscribe(handler cache.ResourceEventHandler) (<-chan struct{}, func(), error) {
	p.handler = handler
	return p.PodSource.Subscribe(handler)
}

// Invariant 3: nor is a pod ended since a list of an older state has the one before it.
func TestListThatHasThePodBefore(t *testing.T) {
	test := func(t *testing.T, r *rig) {
		pods := &rewound{}
		r.start(func(cfg *Config) { pods.PodSource, cfg.Pods = cfg.Pods, pods })
		first := r.api.AddPod(aPod("web"))
		synctest.Wait()
		r.api.DeletePod("web", 0)
		pass(time.Minute)
		second := r.api.AddPod(aPod("web"))
		pass(time.Minute)
		want(t, "held", r.provider.Holds("web"), []types.UID{second.UID})
		r.provider.TakeCalls()

		pods.earlier.Store(first)
		pods.handler.OnUpdate(second, first)
		pass(10 * time.Minute)
		wantList(t, "calls meanwhile", r.provider.TakeCalls("delete", "create", "update"))

		pods.earlier.Store(nil)
		pods.handler.OnUpdate(first, second)
		pass(10 * time.Minute)
		wantList(t, "calls afterwards", r.provider.TakeCalls("delete", "create", "update"))
		want(t, "held afterwards", r.provider.Holds("web"), []types.UID{second.UID})
		want(t, "queue", r.pc.Syncs().Len(), 0)
	}
	bubble(t, test)
	bubble(t, func(t *testing.T, r *rig) {
		r.handler = r.provider.ByUID()
		test(t, r)
	})
}

// A change that is notified of when the pod has left the cache makes no new record: the
// provider would be asked to end the pod again.
func TestChangesOfPodsThatHaveLeft(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(cfg *Config) { cfg.Pods = laggard{cfg.Pods, 5 * time.Second, 0} })
		r.api.AddPod(aPod("web"))
		pass(time.Minute)
		r.provider.TakeCalls()
		pod := r.api.Pod("web")
		r.api.DeletePod("web")
		for range 12 { // as a retry, or the next round, would
			pass(time.Second)
			r.pc.Syncs().Add(string(pod.UID))
		}
		pass(time.Minute)
		want(t, "pod", r.api.Pod("web"), nil)
		wantList(t, "calls", r.provider.TakeCalls("delete", "get"), "delete web "+string(pod.UID)+" grace 30")
		want(t, "records", r.pc.Pods(), 0)
	})
}
