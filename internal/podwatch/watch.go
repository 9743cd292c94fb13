// Package podwatch watches the pods of one node, or of many, with one watch. It
// keeps the pods of the nodes that have joined, each node's by themselves, and
// drops the others as they arrive.
//
// It is no shared informer: handlers are called from the goroutine that reads the
// watch, and must not block.
package podwatch

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// Watch is the one watch. Make it with New or ForNode; its methods are safe for
// concurrent use.
type Watch struct {
	client    kubernetes.Interface
	pods      corev1client.PodsGetter
	namespace string
	resync    time.Duration
	only      string // the one node; empty: any

	shown shown

	mu      sync.RWMutex
	nodes   map[string]*Pods
	synced  bool          // the first list has been taken
	settled chan struct{} // closed while no list is under way
}

// New makes a watch of the pods that are bound to any node, in a namespace or,
// with metav1.NamespaceAll, in all. Every resync, unless that is zero, handlers get all pods
// again as updates by which nothing has changed.
func New(client kubernetes.Interface, namespace string, resync time.Duration) *Watch {
	settled := make(chan struct{})
	close(settled)
	w := &Watch{client: client, namespace: namespace, resync: resync, nodes: map[string]*Pods{}, settled: settled}
	w.pods = newClient(client, w.get)
	return w
}

// Client returns a client of pods that decodes no more of them than the watch has not shown.
func (w *Watch) Client() corev1client.PodsGetter { return w.pods }

// ForNode is New for the pods of one node, which is all that a node's own
// identity may ask for (see the Node authorizer). The node has joined.
func ForNode(client kubernetes.Interface, namespace string, resync time.Duration, name string, pods *Pods) *Watch {
	w := New(client, namespace, resync)
	w.only = name
	w.nodes[name] = pods
	return w
}

// Run watches until ctx ends. It can be called once.
func (w *Watch) Run(ctx context.Context) {
	listwatch.Reflect(ctx, "pods", w.client, w.listWatch(), &corev1.Pod{}, store{w}, w.resync)
}

// Join has the pods of the named node kept in pods, which must be new. While the
// watch runs, it returns when they have been read, and takes as long as the API
// server does; an error means that ctx has ended, or that the API server does
// not want to say. Then the node has not joined.
func (w *Watch) Join(ctx context.Context, name string, pods *Pods) error {
	late, err := w.add(ctx, name, pods)
	if err != nil || !late {
		return err
	}
	// Earlier events of the watch went to no handler. From now on they count.
	found, err := w.list(ctx, name)
	if err != nil {
		if pods.HasSynced() {
			return nil // the watch has begun again meanwhile, and its list has the node's pods
		}
		w.Leave(name)
		return err
	}
	pods.fill(pointers(found), found.ResourceVersion)
	return nil
}

// add makes the node a member, and reports whether it needs a list of its own. A
// list that is under way has dropped the node's pods, and has to end before.
func (w *Watch) add(ctx context.Context, name string, pods *Pods) (late bool, err error) {
	for {
		w.mu.Lock()
		settled := w.settled
		select {
		case <-settled:
			w.nodes[name] = pods
			late = w.synced
			w.mu.Unlock()
			return late, nil
		default:
		}
		w.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// Leave has the pods of the named node kept no more.
func (w *Watch) Leave(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, name)
}

// Find returns the node that has the pod of that name.
func (w *Watch) Find(namespace, name string) (node string, found bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for node, pods := range w.nodes {
		if _, err := pods.Get(namespace, name); err == nil {
			return node, true
		}
	}
	return "", false
}

// get returns the pod of a name on a node, or nil if it is not kept.
func (w *Watch) get(node, namespace, name string) *corev1.Pod {
	pods := w.of(node)
	if pods == nil {
		return nil
	}
	return pods.get(types.NamespacedName{Namespace: namespace, Name: name})
}

// of returns what keeps the pods of a node, or nil.
func (w *Watch) of(node string) *Pods {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.nodes[node]
}

// listing records that a list begins: nodes that join from now on are not in it.
func (w *Watch) listing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.settled:
		w.settled = make(chan struct{})
	default: // one after another that has failed
	}
}
