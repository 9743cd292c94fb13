package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// mirrorEvents records events of remote pods on the home pods until ctx ends: those
// that were added since the first list, regardless of their timestamps.
func (p *Provider) mirrorEvents(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	const what = "events of remote pods"
	lw := listwatch.Of(p.remote.CoreV1().Events(p.namespace), func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("involvedObject.kind", "Pod").String()
	})
	listwatch.Reflect(ctx, what, p.remote, listwatch.Patient(what, lw), &corev1.Event{}, &eventStore{mirror: p.mirrorEvent}, 0)
}

// eventStore is where the watch of events puts them. It keeps none, of which a cluster has very many for an hour, only how
// far it has come: of a later list, those that are newer had been missed.
type eventStore struct {
	mirror  func(*corev1.Event)
	version string // up to which there is nothing to mirror; empty before the first list
}

var _ cache.TransformingStore = (*eventStore)(nil)

// Transformer leaves what is used of an event: those of a first list are in memory together.
func (*eventStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		e, ok := obj.(*corev1.Event)
		if !ok {
			return obj, nil
		}
		only := metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, ResourceVersion: e.ResourceVersion}
		return &corev1.Event{ObjectMeta: only, InvolvedObject: e.InvolvedObject, Type: e.Type, Reason: e.Reason, Message: e.Message}, nil
	}
}

func (s *eventStore) Add(obj any) error {
	if e, ok := obj.(*corev1.Event); ok {
		s.mirror(e)
		s.version = e.ResourceVersion
	}
	return nil
}

func (s *eventStore) Update(obj any) error { return s.Add(obj) }

func (*eventStore) Delete(any) error { return nil }

func (*eventStore) Resync() error { return nil }

func (s *eventStore) Replace(list []any, version string) error {
	for _, obj := range list {
		if e, ok := obj.(*corev1.Event); ok && s.missed(e) {
			s.mirror(e)
		}
	}
	s.version = version
	return nil
}

// missed reports whether a listed event is newer than the last that was seen. Versions of one resource can be compared
// (KEP-5504); what is none, as before the first list, has missed nothing.
func (s *eventStore) missed(e *corev1.Event) bool {
	order, err := resourceversion.CompareResourceVersion(e.ResourceVersion, s.version)
	return err == nil && order > 0
}

// mirrorEvent records an event of a remote pod on the home pod, now or when the pod is in the cache.
func (p *Provider) mirrorEvent(e *corev1.Event) {
	if p.remotePodOf(e) != nil {
		p.recordRemoteEvent(e)
		return
	}
	p.early.add(&corev1.Event{InvolvedObject: e.InvolvedObject, Type: e.Type, Reason: e.Reason, Message: e.Message})
	if remote := p.remotePodOf(e); remote != nil {
		p.mirrorEarlyEvents(remote) // the pod was added to the cache meanwhile
	}
}

// mirrorEarlyEvents records the events that arrived before their pod.
func (p *Provider) mirrorEarlyEvents(remote *corev1.Pod) {
	for _, event := range p.early.pop(remote.UID) {
		p.recordRemoteEvent(event)
	}
}

// recordRemoteEvent records an event of a remote pod that is in the cache on the home pod.
func (p *Provider) recordRemoteEvent(e *corev1.Event) {
	if e.Reason == "" {
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
