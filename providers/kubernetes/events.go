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
// those since the provider began.
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
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    p.mirror,
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
	if !ok || eventTime(e).Time.Before(p.started) {
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

// eventTime is when an event happened last.
func eventTime(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time(e.Series.LastObservedTime)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.Time(e.EventTime)
	}
	return e.CreationTimestamp
}
