package listwatch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// Objects is a client of client-go for the objects of one kind, the list of which is L.
type Objects[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Of returns the ListWatch of the objects of a client. selected sets the selectors of
// each request; nil selects all.
func Of[L runtime.Object](objects Objects[L], selected func(*metav1.ListOptions)) *cache.ListWatch {
	if selected == nil {
		selected = func(*metav1.ListOptions) {}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			selected(&options)
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			selected(&options)
			return objects.Watch(ctx, options)
		},
	}
}

// Informer returns an informer of the objects of a ListWatch of client, which is made
// Patient. Unless the caller sets another transform, it is Transform. what names the
// objects in the log.
func Informer(what string, client any, lw *cache.ListWatch, of runtime.Object, indexers cache.Indexers) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(Patient(what, lw), client), of, 0, indexers)
	_ = informer.SetTransform(Transform) // fails only if the informer is running
	return informer
}

// Services returns an Informer of all Services. It is for the InformerFor of client-go's
// factories, too, whose own informers are not Patient.
func Services(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
	return Informer("services", client, Of(client.CoreV1().Services(metav1.NamespaceAll), nil), &corev1.Service{},
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// Reflect keeps store up to date with the objects of a ListWatch of client, which should
// be Patient, until ctx ends: for stores that are no informer's.
func Reflect(ctx context.Context, name string, client any, lw *cache.ListWatch, of runtime.Object, store cache.ReflectorStore, resync time.Duration) {
	backoff := periodic.Backoff(maxDelay)
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), of, store,
		cache.ReflectorOptions{Name: name, ResyncPeriod: resync, Backoff: &backoff}).RunWithContext(ctx)
}
