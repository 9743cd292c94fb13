package node

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// nodeRig is a node controller between an API and a provider, in a bubble.
type nodeRig struct {
	t    *testing.T
	api  *fakeapi.API
	node *corev1.Node

	nodeWrites atomic.Int32 // those of this controller alone

	mu     sync.Mutex
	ping   func(context.Context) error
	pings  int
	notify func(*corev1.Node)

	nc   *NodeController
	stop func() error
}

func (r *nodeRig) Ping(ctx context.Context) error {
	r.mu.Lock()
	r.pings++
	ping := r.ping
	r.mu.Unlock()
	if ping == nil {
		return nil
	}
	return ping(ctx)
}

func (r *nodeRig) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) { r.notify = notify }

// pinged has pings answered so from now on.
func (r *nodeRig) pinged(ping func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ping = ping
}

func (r *nodeRig) countPings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pings
}

func nodeBubble(t *testing.T, test func(t *testing.T, r *nodeRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &nodeRig{t: t, api: fakeapi.New(t), node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"type": "virtual-kubelet"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "virtual", Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{
				Capacity:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
				NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux"},
			},
		}}
		t.Cleanup(func() {
			if r.stop != nil {
				r.end()
			}
		})
		test(t, r)
	})
}

func (r *nodeRig) withLease() NodeControllerOpt {
	return WithNodeEnableLeaseV1(r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease), 0)
}

func (r *nodeRig) launch(opts ...NodeControllerOpt) {
	r.t.Helper()
	nc, err := NewNodeController(r, r.node, &countedNodes{r.api.CoreV1().Nodes(), &r.nodeWrites}, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.nc = nc
	ctx, cancel := context.WithCancel(r.t.Context())
	result := make(chan error, 1)
	go func() { result <- nc.Run(ctx) }()
	r.stop = func() error { cancel(); return <-result }
	synctest.Wait()
}

// countedNodes counts the writes that a controller makes.
type countedNodes struct {
	corev1client.NodeInterface
	writes *atomic.Int32
}

func (c *countedNodes) Create(ctx context.Context, node *corev1.Node, opts metav1.CreateOptions) (*corev1.Node, error) {
	c.writes.Add(1)
	return c.NodeInterface.Create(ctx, node, opts)
}

func (c *countedNodes) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	c.writes.Add(1)
	return c.NodeInterface.Patch(ctx, name, kind, patch, opts, subresources...)
}

func (r *nodeRig) start(opts ...NodeControllerOpt) {
	r.t.Helper()
	r.launch(opts...)
	select {
	case <-r.nc.Ready():
	default:
		r.t.Fatal("the controller is not ready")
	}
}

func (r *nodeRig) end() {
	r.t.Helper()
	err := r.stop()
	r.stop = nil
	if err != nil {
		r.t.Errorf("the controller ended with %v", err)
	}
}

// ready returns the status, reason and message of the Ready condition.
func (r *nodeRig) ready() string {
	r.t.Helper()
	node := r.api.Node("vk")
	if node == nil {
		return "no node"
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	return "no condition"
}

func (r *nodeRig) wantReady(prefix string) {
	r.t.Helper()
	if got := r.ready(); !strings.HasPrefix(got, prefix) {
		r.t.Errorf("Ready is %q, want %q", got, prefix)
	}
}

func (r *nodeRig) lease() *coordinationv1.Lease {
	r.t.Helper()
	obj, err := r.api.Tracker.Get(fakeapi.Leases, corev1.NamespaceNodeLease, "vk")
	if err != nil {
		r.t.Fatal(err)
	}
	return obj.(*coordinationv1.Lease)
}

// pass lets time pass, and all that is due by then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want fails unless got is want.
func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantList fails unless got is these, in order.
func wantList(t *testing.T, what string, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: got %q, want %q", what, got, wanted)
	}
}
