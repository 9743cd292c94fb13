package node

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// observation is the API's node as a watch showed it.
type observation struct {
	node    *corev1.Node
	deleted bool
}

// watchNode follows the node in the API, so that its deletion is noticed, and
// what others overwrite is repaired, without asking. It returns at once; end,
// called when ctx has ended, waits for what was begun.
func (n *NodeController) watchNode(ctx context.Context) (end func()) {
	if n.source != nil {
		return n.source.Subscribe(n.name, n.sight)
	}
	var watching sync.WaitGroup
	watching.Go(func() { n.watchOneself(ctx) })
	return watching.Wait
}

// sight has the loop look at the node as the API showed it.
func (n *NodeController) sight(node *corev1.Node, deleted bool) {
	for {
		select {
		case n.seen <- observation{node, deleted}:
			return
		case <-n.seen: // the newest counts
		}
	}
}

// watchOneself watches the one node. As long as it cannot, for want of the right to
// perhaps, each status update reads the node first.
func (n *NodeController) watchOneself(ctx context.Context) {
	lw := listwatch.Of(n.nodes, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.name).String()
		n.watching.Store(false)
	})
	begin := lw.WatchFuncWithContext
	lw.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		watched, err := begin(ctx, options)
		n.watching.Store(err == nil)
		return watched, err
	}
	informer := listwatch.Informer("the node", plainWatch{}, lw, &corev1.Node{}, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.sight(obj.(*corev1.Node), false) },
		UpdateFunc: func(_, obj any) { n.sight(obj.(*corev1.Node), false) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if node, ok := obj.(*corev1.Node); ok {
				n.sight(node, true)
			}
		},
	})
	if err != nil { // only of an informer that runs already
		log.G(ctx).WithError(err).Error("Cannot watch the node")
		return
	}
	informer.RunWithContext(ctx)
}

// plainWatch keeps the informer to list and watch: for one object the streaming
// list has no advantage, and not every NodeInterface can do it.
type plainWatch struct{}

func (plainWatch) IsWatchListSemanticsUnSupported() bool { return true }

// observe records what a watch showed, and reports whether the node has to be looked at.
func (n *NodeController) observe(s observation) bool {
	n.shown = true
	if s.deleted {
		if n.current != nil && n.current.UID != s.node.UID {
			return false // another one has been registered since
		}
		n.current = nil
		n.known.Store(nil)
		return true
	}
	if n.current != nil {
		if order, err := resourceversion.CompareResourceVersion(s.node.ResourceVersion, n.current.ResourceVersion); err == nil && order <= 0 {
			return false
		}
	}
	n.take(s.node)
	return true
}
