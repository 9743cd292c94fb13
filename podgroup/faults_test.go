package podgroup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// A list that is under way when the provider is closed does nothing any more: another
// process may have the node by then.
func TestListThatIsUnderWayAtTheEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		create(t, c, p, grouptest.NewPod("web"))
		time.Sleep(5 * time.Second)
		if _, err := w.Duplicate("web"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.GetPods(t.Context()); err != nil { // the next list deletes the second unit
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.Delay(string(podgroup.ActionList), 1, 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.GetPods(ctx); err == nil {
			t.Fatal("the list is not slow")
		}
		grouptest.Close(t, p)
		before := w.Calls("")
		time.Sleep(time.Minute)
		if _, err := p.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("a provider that is closed lists with %v", err)
		}
		if n := w.Calls("") - before; n != 0 || len(w.Units(nil)) != 2 {
			t.Errorf("%d calls were made after the end; there are %d units, want 2", n, len(w.Units(nil)))
		}
	})
}

// deaf is a listing whose lists ignore their context while the gate is closed.
type deaf struct {
	listing
	gate *atomic.Pointer[chan struct{}]
}

func (d deaf) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := d.listing.List(ctx, filter, page)
	if gate := d.gate.Swap(nil); gate != nil {
		<-*gate
	}
	return found, err
}

// A list that never ends, in spite of its deadline, is given up, and not believed when it ends
// after a newer one.
func TestListThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		gate, hangs := make(chan struct{}), &atomic.Pointer[chan struct{}]{}
		p, _ := c.Start(t, deaf{listing{memory{w}}, hangs}, options())
		hangs.Store(&gate)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // as the controller's
		defer cancel()
		if _, err := p.GetPods(ctx); err == nil {
			t.Fatal("the list does not hang")
		}
		create(t, c, p, grouptest.NewPod("web"))
		time.Sleep(5 * time.Second)
		count := func() int {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			pods, err := p.GetPods(ctx)
			if err != nil {
				t.Fatalf("after a list that hangs: %v", err)
			}
			return len(pods)
		}
		if n := count(); n != 1 {
			t.Errorf("there are %d pods, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		count()
		close(gate)
		synctest.Wait()
		if n := count(); n != 1 {
			t.Errorf("after the end of the list that hung there are %d pods, want 1", n)
		}
	})
}

// lossy is a watching whose stream leaves out events.
type lossy struct {
	watching
	loses func(podgroup.Unit) bool
}

func (l lossy) Watch(ctx context.Context, position string, changed func(podgroup.Unit)) error {
	return l.watching.Watch(ctx, position, func(u podgroup.Unit) {
		if !l.loses(u) {
			changed(u)
		}
	})
}

// notifications are the phases that a provider has notified of, by pod.
func notifications(t *testing.T, p nodeutil.Provider) func(pod string) []corev1.PodPhase {
	t.Helper()
	var mu sync.Mutex
	all := map[string][]corev1.PodPhase{}
	p.(node.PodNotifier).NotifyPods(t.Context(), func(pod *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		all[pod.Name] = append(all[pod.Name], pod.Status.Phase)
	})
	synctest.Wait()
	return func(pod string) []corev1.PodPhase {
		mu.Lock()
		defer mu.Unlock()
		return slices.Compact(slices.Clone(all[pod]))
	}
}

// What a stream leaves out is notified of after the next list.
func TestEventsThatAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, lossy{watching{listing{memory{w}}}, func(u podgroup.Unit) bool { return u.Over() }}, options())
		notified := notifications(t, p)
		job, web := grouptest.NewPod("job"), grouptest.NewPod("web")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		create(t, c, p, job)
		create(t, c, p, web)
		time.Sleep(10 * time.Second)
		if err := w.Exit("job", "main", 0); err != nil {
			t.Fatal(err)
		}
		if err := p.DeletePod(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		for range 6 { // as the node's health is checked
			time.Sleep(time.Minute)
			if _, err := p.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := notified("job"); got[len(got)-1] != corev1.PodSucceeded {
			t.Errorf("of a pod that has ended %v was notified", got)
		}
		if got := notified("web"); got[len(got)-1] != corev1.PodFailed {
			t.Errorf("of a pod whose unit was stopped %v was notified", got)
		}
	})
}

// A unit that was created, and that no event is about, is looked for in a list.
func TestUnitThatNoEventShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, lossy{watching{listing{memory{w}}}, func(podgroup.Unit) bool { return true }}, options())
		notified := notifications(t, p)
		pod := grouptest.NewPod("web")
		create(t, c, p, pod)
		time.Sleep(65 * time.Second)
		if status := statusOf(t, p, pod); status.Phase != corev1.PodRunning {
			t.Errorf("the pod is %s", status.Phase)
		}
		if got := notified("web"); !slices.Equal(got, []corev1.PodPhase{corev1.PodRunning}) {
			t.Errorf("%v was notified", got)
		}
	})
}

// refusing is a listing whose creations are refused after a while, each with its own time.
type refusing struct {
	listing
	calls map[string]*atomic.Int32
}

func (r refusing) Create(_ context.Context, request *podgroup.Request) (podgroup.Unit, error) {
	r.calls[request.Pod.Name].Add(1)
	if request.Pod.Name == "first" {
		time.Sleep(time.Second)
		return podgroup.Unit{}, podgroup.Throttled(errors.New("too many"), time.Minute)
	}
	time.Sleep(2 * time.Second)
	return podgroup.Unit{}, podgroup.Throttled(errors.New("too many"), 0)
}

// The silence for which a service has asked is not shortened by the refusal of a call that
// was under way.
func TestSilenceIsNotShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		calls := map[string]*atomic.Int32{"first": {}, "second": {}}
		p, _ := c.Start(t, refusing{listing{memory{w}}, calls}, options())
		if _, err := p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for name := range calls {
			pod := grouptest.NewPod(name)
			c.SetPod(pod)
			wg.Go(func() { _ = p.CreatePod(t.Context(), pod) }) // it is refused
		}
		wg.Wait()
		time.Sleep(30 * time.Second)
		err := p.CreatePod(t.Context(), grouptest.NewPod("first"))
		if delay, _ := errdefs.RetryAfter(err); delay < 20*time.Second || calls["first"].Load() != 1 {
			t.Errorf("half a minute after the service asked for a minute of silence there were %d calls, and the error is %v, for %s", calls["first"].Load(), err, delay)
		}
	})
}

// A list without units is not believed either if no pod has run in its unit yet.
func TestEmptyListWhilePodsArePending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Hour), grouptest.NewCluster("home")
		p, _ := c.Start(t, confirming{listing{memory{w}}}, options())
		pod := grouptest.NewPod("job")
		create(t, c, p, pod)
		pod.Status = *statusOf(t, p, pod)
		c.SetPod(pod)
		time.Sleep(10 * time.Minute)
		w.Hide(true)
		if pods, err := p.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("the list of a service that hides its units has %d pods, error %v", len(pods), err)
		}
	})
}

// tokenPod returns a pod with a token.
func tokenPod() *corev1.Pod {
	pod := grouptest.NewPod("token")
	pod.Spec.ServiceAccountName = "default"
	pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}}
	return pod
}

// A token that is due while the service shows nothing is renewed afterwards.
func TestTokenThatIsDueWhileTheServiceShowsNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		create(t, c, p, tokenPod())
		round := func() {
			time.Sleep(5 * time.Second)
			if _, err := p.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for begin := time.Now(); time.Since(begin) < time.Hour; round() {
			w.Hide(time.Since(begin) > 40*time.Minute && time.Since(begin) < 55*time.Minute)
		}
		if n := c.Tokens(); n != 2 {
			t.Errorf("%d tokens were requested", n)
		}
	})
}

// A process that may have lost the node changes no unit.
func TestFilesAreNotUpdatedWithoutTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		var lost atomic.Bool
		init := c.Config()
		init.MayBegin = func() bool { return !lost.Load() }
		p, _, err := podgroup.New(init, listing{memory{w}}, options())
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		c.SetConfigMap("settings", map[string]string{"level": "one"})
		pod := grouptest.NewPod("web")
		pod.Spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
		create(t, c, p, pod)
		time.Sleep(10 * time.Second)
		statusOf(t, p, pod)
		level := func() string {
			u, err := w.OfPod("web")
			if err != nil {
				t.Fatal(err)
			}
			return string(u.Files["files"]["level"].Data)
		}
		lost.Store(true)
		c.SetConfigMap("settings", map[string]string{"level": "two"})
		time.Sleep(time.Minute)
		if got := level(); got != "one" {
			t.Errorf("without the node the file became %q", got)
		}
		lost.Store(false)
		time.Sleep(5 * time.Minute)
		if got := level(); got != "two" {
			t.Errorf("with the node the file is %q", got)
		}
	})
}

// A unit that a list lacks for a moment does not repeat its events.
func TestEventsOfUnitsThatComeBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		create(t, c, p, grouptest.NewPod("web"))
		for _, hidden := range []bool{false, true, false} {
			w.Hide(hidden)
			time.Sleep(10 * time.Second)
			if _, err := p.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := events(c); len(got) != 1 {
			t.Errorf("the events are %q, want one", got)
		}
	})
}

// late is a getting whose creations fail, and take effect after two minutes.
type late struct {
	getting
	begun *sync.WaitGroup
}

func (l late) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	l.begun.Go(func() {
		time.Sleep(2 * time.Minute)
		_, _ = l.getting.Create(context.WithoutCancel(ctx), r) // nobody waits for it
	})
	return podgroup.Unit{}, errors.New("no answer")
}

// A creation that takes effect when its pod is gone leaves no unit, also where the service
// has no list.
func TestCreationThatTakesEffectAfterItsPodIsGone(t *testing.T) {
	var begun sync.WaitGroup
	withAgents(t, func(t *testing.T, a *agent) {
		if !withoutList(a) {
			return
		}
		a.stop()
		a.backend = func(m memory) podgroup.Backend { return late{getting{m}, &begun} }
		a.start()
		a.add(grouptest.NewPod("web"))
		a.remove("web")
		a.wait(90*time.Second, "after the deletion", "[]")
		begun.Wait()
		a.wait(2*time.Minute, "after the creation took effect", "[]")
		if n := a.created(); n != 1 || len(a.world.Units(nil)) != 1 { // that of created
			t.Errorf("%d units were made, and are %v", n, a.world.Units(nil))
		}
	})
}

// An account may have fewer calls a minute than its list has pages: a list that is throttled
// goes on where it was, and nobody waits for it.
func TestListWithMorePagesThanCallsAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, listing{memory{w}}, options())
		for i := range 450 { // five pages
			create(t, c, p, grouptest.NewPod(fmt.Sprintf("pod-%03d", i)))
		}
		time.Sleep(5 * time.Minute)
		w.SetQuota(string(podgroup.ActionList), 2)
		w.SetPageLife(5 * time.Minute)
		lists := 0
		for began := time.Now(); time.Since(began) < 15*time.Minute; time.Sleep(5 * time.Second) {
			asked := time.Now()
			pods, err := p.GetPods(t.Context())
			if err == nil && len(pods) != 450 || err != nil && !errdefs.IsUnavailable(err) && time.Since(asked) > time.Second {
				t.Errorf("there are %d pods after %s, error %v", len(pods), time.Since(asked), err)
			}
			if err == nil {
				lists++
			}
		}
		if lists == 0 {
			t.Error("in 15 minutes there was no whole list")
		}
	})
}

// A service may forget the page at which a list was throttled.
func TestPageThatExpiresWhileAListIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, listing{memory{w}}, options())
		for i := range 150 {
			create(t, c, p, grouptest.NewPod(fmt.Sprintf("pod-%03d", i)))
		}
		time.Sleep(5 * time.Minute)
		w.SetQuota(string(podgroup.ActionList), 1)
		if pods, err := p.GetPods(t.Context()); err == nil {
			t.Fatalf("a list that is throttled has %d pods", len(pods))
		}
		w.SetQuota(string(podgroup.ActionList), 100)
		time.Sleep(5 * time.Minute) // pages are good for one
		if pods, err := p.GetPods(t.Context()); err != nil || len(pods) != 150 {
			t.Errorf("there are %d pods, error %v", len(pods), err)
		}
	})
}

// A list that takes long does not show what was created after it began, however long ago that
// is when the list ends.
func TestUnitThatIsCreatedDuringALongList(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		for i := range 150 {
			create(t, c, p, grouptest.NewPod(fmt.Sprintf("pod-%03d", i)))
		}
		time.Sleep(5 * time.Minute)
		w.SetQuota(string(podgroup.ActionList), 1)
		if _, err := p.GetPods(t.Context()); err == nil {
			t.Fatal("the list is not throttled")
		}
		job := grouptest.NewPod("job")
		create(t, c, p, job)
		time.Sleep(61 * time.Second)
		w.SetQuota(string(podgroup.ActionList), 100)
		if _, err := p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		statusOf(t, p, job)
	})
}

// The node has an allowance of calls to use up, too, and is well when it has done so.
func TestNodeIsWellWhileItsCallsAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		o.Budget = podgroup.NewBudget(map[podgroup.Action]int{podgroup.ActionList: 2})
		p, n := c.Start(t, listing{memory{w}}, o)
		for range 3 {
			if err := n.Ping(t.Context()); err != nil {
				t.Errorf("the node is not well: %v", err)
			}
			time.Sleep(5 * time.Second)
		}
		if _, err := p.GetPods(t.Context()); err == nil {
			t.Error("the calls are not used up")
		} else if delay, ok := errdefs.RetryAfter(err); !ok || delay > time.Minute {
			t.Errorf("the error is %v", err)
		}
	})
}

// A backend may ignore the end of its context. The provider is closed all the same.
func TestCloseWhileAListHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		gate, hangs := make(chan struct{}), &atomic.Pointer[chan struct{}]{}
		p, _, err := podgroup.New(c.Config(), deaf{listing{memory{w}}, hangs}, options())
		if err != nil {
			t.Fatal(err)
		}
		hangs.Store(&gate)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.GetPods(ctx); err == nil {
			t.Fatal("the list does not hang")
		}
		closed := time.Now()
		if err := p.(io.Closer).Close(); err == nil || time.Since(closed) > time.Minute {
			t.Errorf("after %s Close returns %v", time.Since(closed), err)
		}
		close(gate)
		synctest.Wait()
	})
}

// brief is a watching whose service ends each stream after a while.
type brief struct {
	watching
	streams *atomic.Int32
	lasts   time.Duration
}

func (b brief) Watch(ctx context.Context, position string, changed func(podgroup.Unit)) error {
	b.streams.Add(1)
	ctx, cancel := context.WithTimeout(ctx, b.lasts)
	defer cancel()
	_ = b.watching.Watch(ctx, position, changed)
	return nil
}

// A stream that ends after a few seconds each time is opened again soon; one that cannot be
// opened is tried more and more rarely.
func TestStreamsThatAreShort(t *testing.T) {
	for lasts, want := range map[time.Duration]struct{ least, most int32 }{20 * time.Second: {25, 30}, 0: {8, 20}} {
		synctest.Test(t, func(t *testing.T) {
			w, c, count := grouptest.New(time.Second), grouptest.NewCluster("home"), &atomic.Int32{}
			p, _ := c.Start(t, brief{watching{listing{memory{w}}}, count, lasts}, options())
			p.(node.PodNotifier).NotifyPods(t.Context(), func(*corev1.Pod) {})
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := count.Load(); n < want.least || n > want.most {
				t.Errorf("of streams of %s there were %d in ten minutes, want %d to %d", lasts, n, want.least, want.most)
			}
		})
	}
}

// The clock of a service may be behind. What happens to a unit after the agent has started is
// recorded all the same, and what happened before is not recorded again.
func TestEventsOfAServiceWhoseClockIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		w.Advance(-10 * time.Minute)
		first, _ := c.Start(t, listing{memory{w}}, options())
		create(t, c, first, grouptest.NewPod("old"))
		time.Sleep(5 * time.Second)
		if _, err := first.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := events(c); len(got) != 1 {
			t.Errorf("the events of a new unit are %q, want one", got)
		}
		grouptest.Close(t, first)
		p, _ := c.Start(t, listing{memory{w}}, options())
		create(t, c, p, grouptest.NewPod("new"))
		happen := func(pod, message string) {
			at := w.Now()
			if err := w.Change(pod, func(u *grouptest.Unit) {
				u.Events = append(u.Events, podgroup.Event{Type: "Warning", Reason: "Odd", Message: message, At: at})
			}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			time.Sleep(5 * time.Second)
			if _, err := p.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := events(c); len(got) != 1 || !strings.Contains(got[0], "Started") {
			t.Errorf("after the restart the events are %q, want that of the new unit", got)
		}
		happen("old", "this is new")
		time.Sleep(5 * time.Second)
		if _, err := p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := events(c); len(got) != 1 || !strings.Contains(got[0], "this is new") {
			t.Errorf("the events are %q, want the new one", got)
		}
	})
}
