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
		Transform: p.onlyOurs,
	})
	informer.RunWithContext(ctx)
}

// onlyOurs drops of an event what is not needed, and of one that is not of a pod of
// ours, of which a cluster may have very many, what it says.
func (p *Provider) onlyOurs(obj any) (any, error) {
	e, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	only := &corev1.Event{ObjectMeta: onlyIdentity(&e.ObjectMeta), InvolvedObject: e.InvolvedObject}
	if p.remoteOf(e) != nil {
		only.Type, only.Reason, only.Message = e.Type, e.Reason, e.Message
		return only, nil
	}
	early := *only
	early.Type, early.Reason, early.Message = e.Type, e.Reason, e.Message
	p.early.add(&early)
	if remote := p.remoteOf(e); remote != nil {
		p.mirrorEarly(remote) // which has become known meanwhile
	}
	return only, nil
}

// mirrorEarly records the events that came before their pod was known.
func (p *Provider) mirrorEarly(remote *corev1.Pod) {
	for _, event := range p.early.take(remote.UID) {
		p.mirror(event)
	}
}

// mirror records an event of a remote pod on the one at home.
func (p *Provider) mirror(obj any) {
	e, ok := obj.(*corev1.Event)
	if !ok || e.Reason == "" {
		return
	}
	remote := p.remoteOf(e)
	if remote == nil {
		return
	}
	if local := p.local(remote); local != nil {
		p.event(local, e.Type, e.Reason, "remote: "+e.Message)
	}
}

// remoteOf is the pod of ours that an event is about, or nil.
func (p *Provider) remoteOf(e *corev1.Event) *corev1.Pod {
	found, ok, err := p.informer.GetStore().GetByKey(e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name)
	if err != nil || !ok {
		return nil
	}
	if remote, ok := found.(*corev1.Pod); ok && remote.UID == e.InvolvedObject.UID && p.translate.Home.Owns(remote) {
		return remote
	}
	return nil
}
