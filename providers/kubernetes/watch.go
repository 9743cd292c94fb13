package kubernetes

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// podEvents has each change of a remote pod told at home.
func (p *Provider) podEvents() cache.ResourceEventHandler {
	changed := func(obj any) {
		remote, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		p.meet(translate.UIDOf(remote))
		p.forgetDoubt(translate.UIDOf(remote))
		if remote.DeletionTimestamp == nil {
			p.noteNamespace(remote.Namespace)
		}
		p.takeUp(remote)
		p.tell(remote, p.status(remote))
		p.watchEnd(remote)
		p.watchScheduling(remote)
		if p.replaces(remote) && remote.DeletionTimestamp == nil {
			p.expect(remote)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			changed(obj)
			remote, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			p.mirrorEarly(remote)
			if p.services != nil {
				p.services.EnqueueNamespace(translate.NameOf(remote).Namespace)
			}
		},
		UpdateFunc: func(before, after any) {
			// A list shows another pod of the name.
			was, ok := before.(*corev1.Pod)
			if is, also := after.(*corev1.Pod); ok && also && translate.UIDOf(was) != translate.UIDOf(is) {
				p.doubt(was)
			}
			changed(after)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok { // a list lacks it
				if remote, ok := last.Obj.(*corev1.Pod); ok {
					p.doubt(remote)
				}
				return
			}
			if remote, ok := obj.(*corev1.Pod); ok {
				p.deleted(remote)
			}
		},
	}
}

// deleted is called when a remote pod has gone.
func (p *Provider) deleted(remote *corev1.Pod) {
	p.mu.Lock()
	delete(p.ending, remote.UID)
	p.mu.Unlock()
	if p.isGivenUp(remote) {
		p.tell(remote, p.status(remote))
		p.reflector.UnregisterPod(translate.UIDOf(remote))
		return
	}
	if p.restarts(remote) {
		begin := p.expectLater(remote)
		p.tell(remote, p.waitingStatus(remote)) // before what comes of it is reported
		begin()
		return
	}
	p.tell(remote, translate.Deleted(p.translate.Status(remote), "The pod was deleted in the remote cluster", metav1.Now()))
	p.reflector.UnregisterPod(translate.UIDOf(remote))
}
