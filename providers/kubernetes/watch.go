package kubernetes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// podEventHandler returns the handler of changes of remote pods.
func (p *Provider) podEventHandler() cache.ResourceEventHandler {
	changed := func(obj any) {
		remote, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		p.recordSeen(translate.UIDOf(remote))
		p.forgetUnconfirmed(translate.UIDOf(remote))
		if remote.DeletionTimestamp == nil {
			p.recordNamespace(remote.Namespace)
		}
		p.adopt(remote)
		p.notifyStatus(remote, p.status(remote))
		p.watchDeletion(remote)
		p.watchScheduling(remote)
		if p.replacesEnded(remote) && remote.DeletionTimestamp == nil {
			p.scheduleReplacement(remote)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			changed(obj)
			remote, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			p.warnOfController(nil, remote)
			p.mirrorEarlyEvents(remote)
			if p.services != nil {
				p.services.EnqueueNamespace(translate.NameOf(remote).Namespace)
			}
		},
		UpdateFunc: func(before, after any) {
			// A list has another pod of the same name.
			was, ok := before.(*corev1.Pod)
			is, also := after.(*corev1.Pod)
			if ok && also && translate.UIDOf(was) != translate.UIDOf(is) {
				p.markUnconfirmed(was)
			}
			if also {
				p.warnOfController(was, is)
			}
			changed(after)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok { // a list lacks it
				if remote, ok := last.Obj.(*corev1.Pod); ok {
					p.markUnconfirmed(remote)
				}
				return
			}
			if remote, ok := obj.(*corev1.Pod); ok {
				p.handleDeleted(remote, false)
			}
		},
	}
}

// warnOfController records that a controller of the remote cluster, whose selector matches the
// labels that a pod has from home, has adopted it: it may delete it. was is nil for a new one.
func (p *Provider) warnOfController(was, is *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(is)
	local := p.homePod(is)
	if owner == nil || local == nil || was != nil && metav1.IsControlledBy(was, &metav1.ObjectMeta{UID: owner.UID}) {
		return
	}
	p.recordEvent(local, corev1.EventTypeWarning, "RemotePodAdopted", fmt.Sprintf(
		"%s %s of the remote cluster, whose selector matches the labels of the pod, has adopted it there, and may delete it: give the pods of home other labels or namespaces there", owner.Kind, owner.Name))
}

// handleDeleted handles a remote pod that a watch reports as deleted. Since it selects by
// labels, the pod may have lost them, and run on: unless confirmed says that it is gone, it
// is read first if nobody was deleting it.
func (p *Provider) handleDeleted(remote *corev1.Pod, confirmed bool) {
	p.mu.Lock()
	delete(p.deleting, remote.UID)
	p.mu.Unlock()
	if p.markUnscheduledDeleted(remote) {
		p.notifyStatus(remote, p.status(remote))
		p.reflector.UnregisterPod(translate.UIDOf(remote))
		return
	}
	if p.replacesDeleted(remote) {
		begin := p.prepareReplacement(remote)
		p.notifyStatus(remote, p.replacementStatus(remote)) // before the replacement reports a status
		begin()
		return
	}
	if local := p.homePod(remote); !confirmed && local != nil && local.DeletionTimestamp == nil && remote.DeletionTimestamp == nil && !ended(remote) {
		p.confirmLater(remote, true)
		return
	}
	p.notifyStatus(remote, translate.Deleted(p.translate.Status(remote), "The pod was deleted in the remote cluster", metav1.Now()))
	p.reflector.UnregisterPod(translate.UIDOf(remote))
}
