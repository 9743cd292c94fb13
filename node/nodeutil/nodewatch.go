package nodeutil

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// nodeWatch is one watch of Nodes for many node controllers. Of others' nodes it
// keeps nothing, nor a Node that a controller has been given, which keeps it itself.
type nodeWatch struct {
	client kubernetes.Interface

	mu    sync.Mutex
	nodes map[string]*watchedNode
}

type watchedNode struct {
	exists bool
	uid    types.UID
	last   *corev1.Node // for who subscribes; nil if there is none, or a subscriber has it
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
		n.last = nil
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

// set gives a node as the API has it to its subscriber, or keeps it for one. w.mu is held.
func (w *nodeWatch) set(node *corev1.Node) {
	n := w.nodes[node.Name]
	if n == nil {
		return
	}
	listwatch.Trim(node)
	n.exists, n.uid = true, node.UID
	if n.notify == nil {
		n.last = node
		return
	}
	n.notify(node, false)
}

// unset notifies the subscriber of a node that the API no longer has. w.mu is held.
func (w *nodeWatch) unset(last *corev1.Node) {
	n := w.nodes[last.Name]
	if n == nil || !n.exists {
		return
	}
	n.exists, n.uid, n.last = false, "", nil
	if n.notify != nil {
		n.notify(last, true)
	}
}

// nodeStore is the watch as its reflector sees it.
type nodeStore struct{ *nodeWatch }

// Add implements cache.ReflectorStore.
func (s nodeStore) Add(obj any) error {
	if n, ok := obj.(*corev1.Node); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.set(n)
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
		s.unset(n)
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
			s.set(n)
		}
	}
	for name, n := range s.nodes {
		if !found[name] {
			s.unset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: n.uid}})
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
