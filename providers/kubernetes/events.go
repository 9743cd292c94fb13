package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// mirrorEvents records events of remote pods on the pods at home, until ctx ends:
// those since the provider began, whatever the remote cluster's clock says.
func (p *Provider) mirrorEvents(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	events := p.remote.CoreV1().Events(p.namespace)
	ofPods := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = fields.OneTermEqualSelector("involvedObject.kind", "Pod").String()
		return options
	}
	lw := listwatch.Patient("events of remote pods", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return events.List(ctx, ofPods(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return events.Watch(ctx, ofPods(options))
		},
	})
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(lw, p.remote),
		ObjectType:    &corev1.Event{},
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, before bool) {
				if !before {
					p.mirror(obj)
				}
			},
			UpdateFunc: func(_, after any) { p.mirror(after) },
		},
		Transform: onlyHeader,
	})
	informer.RunWithContext(ctx)
}

// onlyHeader drops of an event, in a cluster where many may not be ours, what is
// not needed.
func onlyHeader(obj any) (any, error) {
	if e, ok := obj.(*corev1.Event); ok {
		e.ManagedFields = nil
	}
	return obj, nil
}

func (p *Provider) mirror(obj any) {
	e, ok := obj.(*corev1.Event)
	if !ok {
		return
	}
	found, ok, err := p.informer.GetStore().GetByKey(e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name)
	if err != nil || !ok {
		return
	}
	remote, ok := found.(*corev1.Pod)
	if !ok || remote.UID != e.InvolvedObject.UID || !p.translate.Home.Owns(remote) {
		return
	}
	if local := p.local(remote); local != nil {
		p.event(local, e.Type, e.Reason, "remote: "+e.Message)
	}
}
