package node

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// BenchmarkNodesAtRest measures what a node of a fleet costs that has nothing to
// do: its two controllers, without what the fleet has once. The time is that of
// the registrations.
func BenchmarkNodesAtRest(b *testing.B) {
	const nodes = 1000
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		before := usage()
		var running sync.WaitGroup
		var waits []func()
		workers := NewWorkers(10)
		source := &oneWatch{tell: map[string]func(*corev1.Node, bool){}}
		for i := range nodes {
			api := &apiOfOne{}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("vk-%d", i)}}
			nc, err := NewNodeController(nil, node, api, WithNodeEnableLeaseV1(leaseOfOne{api: api}, 40), WithNodeSource(source))
			if err != nil {
				b.Fatal(err)
			}
			pc, err := NewPodController(PodControllerConfig{
				PodClient: podsOfNobody{}, Pods: noPods{}, EventRecorder: &record.FakeRecorder{}, Provider: idleProvider{},
				SkipDownwardAPIResolution: true, Workers: workers,
			})
			if err != nil {
				b.Fatal(err)
			}
			running.Go(func() { _ = nc.Run(ctx) })
			wait, err := pc.Start(ctx, 10)
			if err != nil {
				b.Fatal(err)
			}
			waits = append(waits, wait)
			<-nc.Ready()
		}
		after := atRest()
		b.ReportMetric(float64(after.goroutines-before.goroutines)/nodes, "goroutines/node")
		b.ReportMetric((after.heap-before.heap)/nodes, "heap-B/node")
		b.ReportMetric((after.stacks-before.stacks)/nodes, "stack-B/node")
		cancel()
		for _, wait := range waits {
			wait()
		}
		running.Wait()
	}
}

type used struct {
	goroutines   int
	heap, stacks float64
}

func usage() used {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{runtime.NumGoroutine(), float64(m.HeapAlloc), float64(m.StackInuse)}
}

// atRest is the usage once no goroutine has ended for a while.
func atRest() used {
	for was := -1; was != runtime.NumGoroutine(); time.Sleep(time.Second / 2) {
		was = runtime.NumGoroutine()
	}
	usage() // each collection halves the stacks that are used little
	usage()
	return usage()
}

// apiOfOne is the API of one Node and its Lease, with nothing about it.
type apiOfOne struct {
	corev1client.NodeInterface
	mu    sync.Mutex
	node  *corev1.Node
	lease *coordinationv1.Lease
}

func (a *apiOfOne) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.node == nil {
		return nil, apierrors.NewNotFound(fakeapi.Nodes.GroupResource(), "")
	}
	return a.node, nil
}

func (a *apiOfOne) Create(_ context.Context, node *corev1.Node, _ metav1.CreateOptions) (*corev1.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = node
	a.node.UID = types.UID(node.Name)
	return a.node, nil
}

func (a *apiOfOne) Patch(ctx context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	return a.Get(ctx, name, metav1.GetOptions{})
}

type leaseOfOne struct {
	coordinationv1client.LeaseInterface
	api *apiOfOne
}

func (l leaseOfOne) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.api.mu.Lock()
	defer l.api.mu.Unlock()
	if l.api.lease == nil {
		return nil, apierrors.NewNotFound(fakeapi.Leases.GroupResource(), "")
	}
	return l.api.lease, nil
}

func (l leaseOfOne) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.api.mu.Lock()
	defer l.api.mu.Unlock()
	l.api.lease = lease
	return lease, nil
}

func (l leaseOfOne) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.Create(ctx, lease, metav1.CreateOptions{})
}

// noPods is the PodSource of a node without pods.
type noPods struct{}

func (noPods) Get(_, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(fakeapi.Pods.GroupResource(), name)
}

func (noPods) List() []*corev1.Pod { return nil }

func (noPods) HasSynced() bool { return true }

func (noPods) Subscribe(cache.ResourceEventHandler) (<-chan struct{}, func(), error) {
	synced := make(chan struct{})
	close(synced)
	return synced, func() {}, nil
}

type podsOfNobody struct{}

func (podsOfNobody) Pods(string) corev1client.PodInterface { return nil }

// idleProvider holds no pods.
type idleProvider struct{ PodLifecycleHandler }

func (idleProvider) NotifyPods(context.Context, func(*corev1.Pod))  {}
func (idleProvider) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }
