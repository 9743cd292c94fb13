package podlifecycle

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// sharedWorkers are those of several controllers.
type sharedWorkers struct{ calls, writes *queue.Pool }

// launchWith runs one more controller over the rig's API, for the pods of a
// namespace, with the workers given.
func (r *rig) launchWith(workers sharedWorkers, handler Provider, namespace string) *Controller {
	r.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(r.api, 0, informers.WithNamespace(namespace))
	pc := New(Config{
		PodClient:       r.api.CoreV1(),
		Pods:            InformedPods(factory.Core().V1().Pods()),
		EventRecorder:   r.events,
		Provider:        handler,
		SkipEnvironment: true,
		DefaultRetry:    retryForEver,
		CallWorkers:     workers.calls,
		WriteWorkers:    workers.writes,
		Claim:           always{},
	})
	ctx, cancel := context.WithCancel(r.t.Context())
	factory.Start(ctx.Done())
	wait, err := pc.Start(ctx, 3)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		wait()
		<-pc.Done()
		if err := pc.Err(); err != nil {
			r.t.Errorf("the controller ended with %v", err)
		}
		factory.Shutdown()
	})
	<-pc.Ready()
	return pc
}

// A provider that hangs holds up its own node, and no other that shares the
// workers, though the others' writes have one worker between them.
func TestHangingProviderHoldsUpNoOtherNode(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		workers := sharedWorkers{queue.NewPool(0, nil), queue.NewPool(1, nil)}
		release := make(chan struct{})
		hanging, healthy := nodetest.New(), nodetest.New()
		hanging.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { <-release; return nil }
		})
		one := r.launchWith(workers, hanging.Notifying(), "one")
		r.launchWith(workers, healthy.Notifying(), "two")
		for i := range 20 {
			for _, namespace := range []string{"one", "two"} {
				r.api.AddPod(aPod(fmt.Sprint(i), func(p *corev1.Pod) { p.Namespace = namespace }))
			}
		}
		pass(time.Second)
		running := map[string]int{}
		pods, err := r.api.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running[pod.Namespace]++
			}
		}
		want(t, "running", running, map[string]int{"two": 20})
		want(t, "calls that hang", one.Syncs().ItemsBeingProcessedLen(), 3)
		close(release)
		synctest.Wait()
	})
}

// Creations that only wait, as they report, hold up no other pod, however many there are.
func TestCreationsThatWaitHoldNoWorker(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		workers := sharedWorkers{queue.NewPool(0, nil), queue.NewPool(1, nil)}
		ready := make(chan struct{})
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(ctx context.Context, pod *corev1.Pod) error {
				providercalls.Waits(ctx)
				providercalls.Waits(ctx) // which changes nothing
				select {
				case <-ready:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
		r.launchWith(workers, r.provider.Notifying(), "default")
		for i := range 20 {
			r.api.AddPod(aPod(fmt.Sprint(i)))
		}
		pass(time.Second)
		want(t, "creations", len(r.provider.TakeCalls("create")), 20) // with three workers
		r.api.DeletePod("7")
		pass(time.Second)
		want(t, "deletions", len(r.provider.TakeCalls("delete")), 1)
		close(ready)
		pass(time.Second)
		for i := range 20 {
			if i != 7 {
				want(t, "phase of "+fmt.Sprint(i), r.phase(fmt.Sprint(i)), corev1.PodRunning)
			}
		}
		want(t, "creations again", len(r.provider.TakeCalls("create")), 0)
	})
}

// A controller at rest that was started has no goroutine: it may have pods, also such as
// are to be looked at later.
func TestPodControllersAtRestHaveNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		workers := sharedWorkers{queue.NewPool(0, nil), queue.NewPool(10, nil)}
		const controllers = 20
		for i := range controllers {
			r.launchWith(workers, nodetest.New().Notifying(), fmt.Sprint(i))
			for name := range 5 {
				r.api.AddPod(aPod(fmt.Sprint(name), func(p *corev1.Pod) { p.Namespace = fmt.Sprint(i) }))
			}
		}
		pass(time.Minute)
		want(t, "goroutines", goroutinesIn("/podlifecycle.(*Controller)", "/internal/queue."), 0)
	})
}

// goroutinesIn counts the goroutines that are in one of the functions.
func goroutinesIn(functions ...string) (n int) {
	stacks := make([]byte, 1<<24)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(stack, f) }) {
			n++
		}
	}
	return n
}
