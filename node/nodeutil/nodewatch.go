package nodeutil

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// nodeWatch is one watch of Nodes for many node controllers. Of others' nodes it
// keeps nothing.
type nodeWatch struct {
	client kubernetes.Interface

	mu    sync.Mutex
	nodes map[string]*watchedNode
}

type watchedNode struct {
	last   *corev1.Node // nil if there is none
	notify func(node *corev1.Node, deleted bool)
}

func newNodeWatch(client kubernetes.Interface) *nodeWatch {
	return &nodeWatch{client: client, nodes: map[string]*watchedNode{}}
}

// keep keeps the node of that name, until drop.
func (w *nodeWatch) keep(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name] = &watchedNode{}
}

func (w *nodeWatch) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, name)
}

// Subscribe implements node.NodeSource.
func (w *nodeWatch) Subscribe(name string, f func(node *corev1.Node, deleted bool)) (undo func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if n == nil {
		return func() {}
	}
	n.notify = f
	if n.last != nil {
		f(n.last, false)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		n.notify = nil
	}
}

// run watches until ctx ends.
func (w *nodeWatch) run(ctx context.Context) {
	lw := listwatch.Patient("nodes", listwatch.Of(w.client.CoreV1().Nodes(), nil))
	listwatch.Reflect(ctx, "nodes", w.client, lw, &corev1.Node{}, nodeStore{w}, 0)
}

// set records a node as the API has it, and notifies its subscriber. w.mu is held.
func (w *nodeWatch) set(name string, last *corev1.Node) {
	n := w.nodes[name]
	if n == nil || n.last == nil && last == nil {
		return
	}
	before := n.last
	n.last = last
	if last != nil {
		listwatch.Trim(last)
	}
	switch {
	case n.notify == nil:
	case last == nil:
		n.notify(before, true)
	default:
		n.notify(last, false)
	}
}

// nodeStore is the watch as its reflector sees it.
type nodeStore struct{ *nodeWatch }

// Add implements cache.ReflectorStore.
func (s nodeStore) Add(obj any) error {
	if n, ok := obj.(*corev1.Node); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.set(n.Name, n)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s nodeStore) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s nodeStore) Delete(obj any) error {
	if n, ok := obj.(*corev1.Node); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.set(n.Name, nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s nodeStore) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]bool{}
	for _, obj := range all {
		if n, ok := obj.(*corev1.Node); ok {
			found[n.Name] = true
			s.set(n.Name, n)
		}
	}
	for name := range s.nodes {
		if !found[name] {
			s.set(name, nil)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (nodeStore) Resync() error { return nil }

var (
	_ node.NodeSource      = (*nodeWatch)(nil)
	_ cache.ReflectorStore = nodeStore{}
)
