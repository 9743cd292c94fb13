package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// mirrorEvents records events of remote pods on the home pods until ctx ends: those
// that were added since the informer has synced, regardless of their timestamps.
func (p *Provider) mirrorEvents(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	lw := listwatch.Of(p.remote.CoreV1().Events(p.namespace), func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("involvedObject.kind", "Pod").String()
	})
	informer := listwatch.Informer("events of remote pods", p.remote, lw, &corev1.Event{}, cache.Indexers{})
	// These fail only if the informer is running, or has stopped.
	_ = informer.SetTransform(p.trimEvent)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, before bool) {
			if !before {
				p.mirrorEvent(obj)
			}
		},
		UpdateFunc: func(_, after any) { p.mirrorEvent(after) },
	})
	informer.RunWithContext(ctx)
}

// trimEvent removes unused fields of an event, and nearly all of an event that belongs
// to no pod of this node, of which a cluster may have very many.
func (p *Provider) trimEvent(obj any) (any, error) {
	e, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	only := &corev1.Event{ObjectMeta: trimMetadata(&e.ObjectMeta), InvolvedObject: e.InvolvedObject}
	if p.remotePodOf(e) != nil {
		only.Type, only.Reason, only.Message = e.Type, e.Reason, e.Message
		return only, nil
	}
	early := *only
	early.Type, early.Reason, early.Message = e.Type, e.Reason, e.Message
	p.early.add(&early)
	if remote := p.remotePodOf(e); remote != nil {
		p.mirrorEarlyEvents(remote) // the pod was added to the cache meanwhile
	}
	return only, nil
}

// mirrorEarlyEvents records the events that arrived before their pod.
func (p *Provider) mirrorEarlyEvents(remote *corev1.Pod) {
	for _, event := range p.early.pop(remote.UID) {
		p.mirrorEvent(event)
	}
}

// mirrorEvent records an event of a remote pod on the home pod.
func (p *Provider) mirrorEvent(obj any) {
	e, ok := obj.(*corev1.Event)
	if !ok || e.Reason == "" {
		return
	}
	remote := p.remotePodOf(e)
	if remote == nil {
		return
	}
	if local := p.homePod(remote); local != nil {
		p.recordEvent(local, e.Type, e.Reason, "remote: "+e.Message)
	}
}

// remotePodOf returns the remote pod of this node that an event is about, or nil.
func (p *Provider) remotePodOf(e *corev1.Event) *corev1.Pod {
	found, ok, err := p.informer.GetStore().GetByKey(e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name)
	if err != nil || !ok {
		return nil
	}
	if remote, ok := found.(*corev1.Pod); ok && remote.UID == e.InvolvedObject.UID && p.translate.Home.Owns(remote) {
		return remote
	}
	return nil
}
