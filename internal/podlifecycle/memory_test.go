//go:build !race

package podlifecycle

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
)

// The pods are as a scheduler binds them: its condition is the API's first, and the provider's last. What they
// take besides the cache may be a tenth more than is measured. Of a status that the API has otherwise a struct
// is kept, but nothing that is as in the API.
func TestPodAtRestTakesLittleMemory(t *testing.T) {
	const count = 1000
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		atMost int64 // bytes
	}{
		"as it was created": {nil, 1300},
		"labelled":          {func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, "a", "b") }, 1300},
		"others' condition": {func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.org/gate", Status: corev1.ConditionTrue})
		}, 1870},
	} {
		t.Run(name, func(t *testing.T) {
			resting := newResting(t, count, tc.change)
			took := allocs.LiveHeap(func() []any {
				pc := resting.controller()
				for i := range count {
					resting.live(pc, i)
				}
				pc.syncs, pc.statuses, pc.removals = nil, nil, nil // which nobody has emptied
				return []any{&pc.records, pc.backend, &pc.admission.ledger}
			})
			t.Logf("%d bytes a pod", took/count)
			if took/count > tc.atMost {
				t.Errorf("a pod that rests takes %d bytes in the controller, of at most %d", took/count, tc.atMost)
			}
		})
	}
}

// resting are pods that come to rest, in all the forms in which the API has them meanwhile: the test counts
// none of those.
type resting struct {
	t     *testing.T
	forms [][]*corev1.Pod
	form  int // which the API has
	node  *corev1.Node

	notify func(*corev1.Pod)
	Provider
}

func newResting(t *testing.T, count int, change func(*corev1.Pod)) *resting {
	r := &resting{t: t, node: &corev1.Node{}}
	for i := range count {
		scheduled := aPod(fmt.Sprintf("web-%04d", i), func(pod *corev1.Pod) {
			pod.UID, pod.ResourceVersion, pod.Generation, pod.CreationTimestamp = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), "1", 1, metav1.Time{Time: epoch}
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: metav1.Time{Time: epoch}},
			}}
		})
		running := own(t, scheduled)
		reported := reportedOn(scheduled)
		running.ResourceVersion, running.Status = "2", mergeStatus(scheduled, &reported, 1, nil, epoch)
		forms := []*corev1.Pod{scheduled, own(t, running)}
		if change != nil {
			change(running)
			running.ResourceVersion = "3"
			forms = append(forms, own(t, running))
		}
		r.forms = append(r.forms, forms)
	}
	return r
}

// own returns a copy of a pod as a decoder makes it.
func own(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	decoded := &corev1.Pod{}
	if err := decoded.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// reportedOn is what a provider reports that reports all that a kubelet does.
func reportedOn(pod *corev1.Pod) corev1.PodStatus {
	at := metav1.Time{Time: epoch}
	status := corev1.PodStatus{
		ObservedGeneration: pod.Generation, Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &at,
		HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}, PodIP: "198.51.100.1", PodIPs: []corev1.PodIP{{IP: "198.51.100.1"}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Image: "nginx", ImageID: "nginx@sha256:0", ContainerID: "mock://0", Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation, LastTransitionTime: at})
	}
	return status
}

func (r *resting) controller() *Controller {
	pc := New(Config{
		PodClient: r, Pods: restingSource{resting: r}, EventRecorder: &record.FakeRecorder{}, Provider: r, SkipEnvironment: true,
		DefaultRetry: retryForEver, CallWorkers: queue.NewPool(0, nil), WriteWorkers: queue.NewPool(0, nil), Claim: always{},
		Node: func(context.Context, bool) (*corev1.Node, error) { return r.node, nil },
	})
	pc.askToNotify(r.t.Context())
	pc.early.release() // the caches have synced
	return pc
}

// live has a pod come to rest.
func (r *resting) live(pc *Controller, i int) {
	step := func(do func(context.Context, string) error) {
		if err := do(queue.LongLane(context.Background()), string(r.forms[i][0].UID)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.form = 0
	pc.appears(context.Background(), r.forms[i][0])
	step(pc.syncPod)
	step(pc.writeStatus)
	kept := pc.records.get(r.forms[i][0].UID)
	for r.form = range r.forms[i] {
		kept.sentAt = time.Time{} // long ago
		step(pc.syncPod)
		step(pc.writeStatus)
	}
	for _, old := range r.forms[i][:len(r.forms[i])-1] {
		for name, status := range map[string]*corev1.PodStatus{"reported": kept.providerStatus, "desired": kept.desiredStatus, "sent": kept.sent} {
			if status == &old.Status {
				r.t.Fatalf("version %s is kept for the status that was %s", old.ResourceVersion, name)
			}
		}
	}
}

func (r *resting) current(name string) *corev1.Pod {
	var i int
	if _, err := fmt.Sscanf(name, "web-%d", &i); err != nil {
		r.t.Fatal(err)
	}
	return r.forms[i][min(r.form, len(r.forms[i])-1)]
}

func (r *resting) Pods(string) corev1client.PodInterface             { return restingClient{resting: r} }
func (r *resting) NotifyPods(_ context.Context, f func(*corev1.Pod)) { r.notify = f }
func (r *resting) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return nil, errNoPod
}

func (r *resting) CreatePod(_ context.Context, pod *corev1.Pod) error {
	r.notify(&corev1.Pod{ObjectMeta: pod.ObjectMeta, Status: reportedOn(pod)})
	return nil
}

func (r *resting) UpdatePod(context.Context, *corev1.Pod) error { return nil }

type restingSource struct {
	PodSource
	resting *resting
}

func (s restingSource) Get(_, name string) (*corev1.Pod, error) { return s.resting.current(name), nil }
func (s restingSource) List() []*corev1.Pod                     { return nil }
func (s restingSource) HasSynced() bool                         { return true }

// restingClient makes of a patch what the watch shows next.
type restingClient struct {
	corev1client.PodInterface
	resting *resting
}

func (c restingClient) Patch(_ context.Context, name string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	if c.resting.form > 0 {
		c.resting.t.Fatalf("a pod that rests is patched: %s", patch)
	}
	c.resting.form = 1
	return c.resting.current(name), nil
}
