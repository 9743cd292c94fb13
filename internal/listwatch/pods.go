package listwatch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// PodInformer is a corev1informers.PodInformer of its own: whoever made it runs
// it.
type PodInformer struct {
	informer cache.SharedIndexInformer
}

// Pods returns an informer for the pods of a namespace, or of all for
// metav1.NamespaceAll, that are bound to the node that nodeName returns. A node
// must not ask for more (see the Node authorizer). It is asked at each request.
func Pods(client kubernetes.Interface, namespace string, resync time.Duration, nodeName func() string) *PodInformer {
	pods := client.CoreV1().Pods(namespace)
	ofNode := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName()).String()
		return options
	}
	lw := Patient("pods", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, ofNode(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, ofNode(options))
		},
	})
	return &PodInformer{cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(lw, client), &corev1.Pod{}, resync,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

// Informer returns the informer.
func (p *PodInformer) Informer() cache.SharedIndexInformer { return p.informer }

// Lister reads the informer's cache.
func (p *PodInformer) Lister() corev1listers.PodLister {
	return corev1listers.NewPodLister(p.informer.GetIndexer())
}
