//go:build !race

package podlifecycle

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// What the controller itself allocates for a pod, without a client, a watch or
// a provider.
func TestAllocations(t *testing.T) {
	l := newLife(t)
	running := nodetest.StatusOf(l.scheduled, corev1.PodRunning)
	views := decisions()
	settled := newLife(t)
	settled.begin()
	allocs.Compare(t,
		allocs.Operation{Name: "decide", Do: func() {
			for _, v := range views {
				decide(v)
			}
		}},
		allocs.Operation{Name: "mergeStatus", Do: func() { mergeStatus(l.scheduled, &running, 1, nil, epoch) }},
		allocs.Operation{Name: "life", Do: l.live},
		allocs.Operation{Name: "visit-for-nothing", Do: func() { settled.step(settled.pc.syncPod) }},
		allocs.Operation{Name: "told-the-same-again", Do: func() { l.notify(&l.running) }},
	)
	if l.patches == 0 || l.patches != 2*l.removals {
		t.Errorf("%d patches and %d removals, want two and one for a life", l.patches, l.removals)
	}
}

// BenchmarkLife is the time of a pod's life in the controller.
func BenchmarkLife(b *testing.B) {
	l := newLife(b)
	b.ReportAllocs()
	for b.Loop() {
		l.live()
	}
}

// decisions are views of a pod's life.
func decisions() []view {
	at := time.Unix(1700000000, 0)
	return []view{
		{now: at, desired: desiredRun, progress: progress{observed: unknown}},
		{now: at, desired: desiredRun, progress: progress{observed: absent}},
		{now: at, desired: desiredRun, progress: progress{observed: held, ran: true}},
		{now: at, desired: desiredStop, progress: progress{observed: held, ran: true}, deadline: at.Add(time.Minute)},
		{now: at, desired: desiredStop, progress: progress{observed: held, ran: true, requested: requestedStop, requestedAt: at}, stopped: true},
		{now: at, desired: desiredGone, progress: progress{observed: absent, ran: true, requested: requestedStop, requestedAt: at}},
	}
}

// life has one pod live again and again, as fast as the API and the provider
// could be at best.
type life struct {
	t      testing.TB
	pc     *Controller
	notify func(*corev1.Pod)

	scheduled, deleted *corev1.Pod // in the API
	gone               *corev1.Pod // what the last patch makes of the deleted
	running, ended     corev1.Pod  // in the provider
	inAPI              *corev1.Pod
	patches, removals  int

	Provider // the provider's other methods
}

func newLife(t testing.TB) *life {
	l := &life{t: t}
	l.scheduled = aPod("web", func(p *corev1.Pod) {
		p.UID, p.ResourceVersion, p.Generation = "u1", "1", 1
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		p.Status.Phase = corev1.PodPending
	})
	l.deleted = l.scheduled.DeepCopy()
	l.deleted.ResourceVersion, l.deleted.Status = "3", nodetest.StatusOf(l.scheduled, corev1.PodRunning)
	l.deleted.DeletionTimestamp, l.deleted.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](30)
	l.running, l.ended = *l.scheduled, *l.scheduled
	l.running.Status = nodetest.StatusOf(l.scheduled, corev1.PodRunning)
	l.ended.Status = nodetest.StatusOf(l.scheduled, corev1.PodSucceeded)
	l.deleted.Status.StartTime = &metav1.Time{Time: epoch}
	l.gone = l.deleted.DeepCopy()
	l.gone.ResourceVersion, l.gone.Status = "4", mergeStatus(l.deleted, &l.ended.Status, 1, nil, epoch)
	pc := New(Config{
		PodClient: l, Pods: lifeSource{life: l}, EventRecorder: &record.FakeRecorder{}, Provider: l, SkipEnvironment: true,
		DefaultRetry: retryForEver, CallWorkers: queue.NewPool(0, nil), WriteWorkers: queue.NewPool(0, nil), Claim: always{},
	})
	l.pc = pc
	pc.askToNotify(t.Context())
	pc.early.release() // the caches have synced
	return l
}

func (l *life) step(do func(context.Context, string) error) {
	err := do(context.Background(), string(l.scheduled.UID))
	if errors.Is(err, queue.ErrTakesLong) {
		err = do(queue.LongLane(context.Background()), string(l.scheduled.UID))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// begin is the life until the pod runs.
func (l *life) begin() {
	if r := l.pc.records.get(l.scheduled.UID); r != nil {
		l.pc.backend.forget(r.id, l.scheduled)
		l.pc.records.drop(r)
	}
	l.inAPI = l.scheduled
	l.pc.appears(context.Background(), l.scheduled)
	l.step(l.pc.syncPod)
	l.step(l.pc.writeStatus)
}

func (l *life) live() {
	l.begin()
	l.inAPI = l.deleted
	l.step(l.pc.syncPod)
	l.step(l.pc.writeStatus)
	l.step(l.pc.removePod)
}

func (l *life) Pods(string) corev1client.PodInterface             { return lifeClient{life: l} }
func (l *life) NotifyPods(_ context.Context, f func(*corev1.Pod)) { l.notify = f }

func (l *life) CreatePod(context.Context, *corev1.Pod) error { l.notify(&l.running); return nil }
func (l *life) DeletePod(context.Context, *corev1.Pod) error { l.notify(&l.ended); return nil }
func (l *life) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return nil, errNoPod
}

var errNoPod = errdefs.NotFound("no such pod")

type lifeSource struct {
	PodSource
	life *life
}

func (s lifeSource) Get(string, string) (*corev1.Pod, error) { return s.life.inAPI, nil }
func (s lifeSource) HasSynced() bool                         { return true }

type lifeClient struct {
	corev1client.PodInterface
	life *life
}

func (c lifeClient) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Pod, error) {
	c.life.patches++
	if c.life.inAPI == c.life.deleted {
		return c.life.gone, nil
	}
	return c.life.deleted, nil
}

func (c lifeClient) Delete(context.Context, string, metav1.DeleteOptions) error {
	c.life.removals++
	return nil
}
