package node

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// oneWatch is a NodeSource for many controllers, over one watch.
type oneWatch struct {
	mu    sync.Mutex
	tell  map[string]func(*corev1.Node, bool)
	known map[string]*corev1.Node
}

func (s *oneWatch) Subscribe(name string, f func(node *corev1.Node, deleted bool)) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell[name] = f
	if node := s.known[name]; node != nil {
		f(node, false)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tell, name)
	}
}

func (s *oneWatch) saw(event watch.Event) {
	node, ok := event.Object.(*corev1.Node)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[node.Name] = node
	if f := s.tell[node.Name]; f != nil {
		f(node, event.Type == watch.Deleted)
	}
}

func (r *nodeRig) oneWatch() *oneWatch {
	r.t.Helper()
	s := &oneWatch{tell: map[string]func(*corev1.Node, bool){}, known: map[string]*corev1.Node{}}
	w, err := r.api.CoreV1().Nodes().Watch(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			s.saw(event)
		}
	}()
	r.t.Cleanup(func() { w.Stop(); <-done })
	return s
}

// fleet runs many controllers over one watch of nodes, until the test ends.
func (r *nodeRig) fleet(nodes int, opts ...NodeControllerOpt) {
	r.t.Helper()
	opts = append(opts, WithNodeSource(r.oneWatch()))
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	r.t.Cleanup(func() { cancel(); running.Wait() })
	for i := range nodes {
		node := r.node.DeepCopy()
		node.Name = fmt.Sprintf("vk-%d", i)
		nc, err := NewNodeController(nil, node, r.api.CoreV1().Nodes(), opts...)
		if err != nil {
			r.t.Fatal(err)
		}
		running.Go(func() {
			if err := nc.Run(ctx); err != nil {
				r.t.Error(err)
			}
		})
	}
	synctest.Wait()
}

// A controller that hears of its node from a source does not watch, and answers
// a deletion and what others overwrite as one that does.
func TestNodeSource(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		source := r.oneWatch()
		before := r.api.Watches()
		r.start(r.withLease(), WithNodeSource(source))
		pass(time.Second)
		want(t, "watches of its own", r.api.Watches()-before, 0)
		for range 3 {
			was := r.api.Node("vk")
			if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Second)
			r.wantReady("True")
			is := r.api.Node("vk")
			want(t, "another node", is.UID != was.UID, true)
			r.api.ChangeNode("vk", func(n *corev1.Node) { n.Labels["type"] = "drift" })
			pass(2 * time.Second)
			want(t, "label", r.api.Node("vk").Labels["type"], "virtual-kubelet")
		}
		r.end()
		want(t, "subscriptions", len(source.tell), 0)
	})
	if _, err := NewNodeController(nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk"}}, fakeapi.New(t).CoreV1().Nodes(), WithNodeSource(nil)); err == nil {
		t.Error("a source that is nil is accepted")
	}
}

// unshown is a source whose watch begins when the Node is gone.
type unshown struct{}

func (unshown) Subscribe(string, func(*corev1.Node, bool)) (undo func()) { return func() {} }

// A Node that is deleted after it was registered, and before the watch begins, is missed at one of the next two looks.
func TestNodeDeletedBeforeTheWatchBegins(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		r.start(r.withLease(), WithNodeSource(unshown{}))
		was := r.api.Node("vk")
		pass(2 * time.Second)
		if err := r.api.Tracker.Delete(fakeapi.Nodes, "", "vk"); err != nil {
			t.Fatal(err)
		}
		pass(2 * DefaultStatusUpdateInterval)
		if is := r.api.Node("vk"); is == nil || is.UID == was.UID {
			t.Errorf("two minutes later the Node is %v", is)
		}
	})
}

// A node of a fleet at rest is one goroutine: that of its controller's Run.
func TestNodesAtRestHaveOneGoroutine(t *testing.T) {
	nodeBubble(t, func(t *testing.T, r *nodeRig) {
		const nodes = 40
		r.fleet(0)
		before := runtime.NumGoroutine()
		r.fleet(nodes, r.withLease())
		pass(2*time.Minute + time.Second/2)
		if n := runtime.NumGoroutine() - before; n < nodes || n >= 2*nodes {
			t.Errorf("%d goroutines for %d nodes, want one each", n, nodes)
		}
	})
}
