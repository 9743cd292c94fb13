package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// confirmInterval is how often a pod is read that the remote API server has left out of
// a list.
const confirmInterval = 30 * time.Second

// unlabelledInterval is how often a pod is read that is deleted since it has lost its
// labels: no watch reports its end.
const unlabelledInterval = 5 * time.Second

// markUnconfirmed records a remote pod that a list lacks, while no watch event has
// reported its deletion. The list may be of an older state, or of another cluster. The
// pod keeps its last observed state until it is read from the remote API server.
func (p *Provider) markUnconfirmed(remote *corev1.Pod) {
	if p.isListed(remote) { // it has come back to the cache
		return
	}
	p.confirmLater(remote, false)
}

// confirmLater keeps the last observed state of a remote pod until it is read. reported says
// that a watch has reported its deletion.
func (p *Provider) confirmLater(remote *corev1.Pod, reported bool) {
	uid := translate.UIDOf(remote)
	p.mu.Lock()
	p.unconfirmed[uid] = remote
	p.mu.Unlock()
	p.queue.Add(workItem{uid: uid, unconfirmed: true, reported: reported})
}

// isListed reports whether a remote pod is in the cache.
func (p *Provider) isListed(remote *corev1.Pod) bool {
	obj, ok, err := p.informer.GetStore().GetByKey(remote.Namespace + "/" + remote.Name)
	if err != nil || !ok {
		return false
	}
	listed, ok := obj.(*corev1.Pod)
	return ok && listed.UID == remote.UID && translate.UIDOf(listed) == translate.UIDOf(remote)
}

// unconfirmedPod returns the unconfirmed remote pod of a home pod, or nil.
func (p *Provider) unconfirmedPod(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unconfirmed[uid]
}

// forgetUnconfirmed drops an unconfirmed pod, since it is known to exist, or not to.
func (p *Provider) forgetUnconfirmed(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unconfirmed, uid)
}

// confirm reads an unconfirmed pod from the remote API server, and again until a list
// has it. If it does not exist, it is no longer reported. It counts as deleted if a watch
// has reported that, if that was to be expected, or if it is to be created again; otherwise
// the pod controller decides, which does not accept many pods as lost at once. An error
// means that the state is unknown.
func (p *Provider) confirm(ctx context.Context, item workItem) error {
	uid := item.uid
	last := p.unconfirmedPod(uid)
	if last == nil {
		return nil
	}
	found, err := p.remote.CoreV1().Pods(last.Namespace).Get(ctx, last.Name, metav1.GetOptions{})
	switch {
	case err == nil && found.UID == last.UID && p.hasLostLabels(found, uid) && !p.replacesDeleted(last):
		return p.deleteUnlabelled(ctx, item, last, found)
	case apierror.IsNotFound(err) || err == nil && !p.isOf(uid, found):
		if err := p.checkRemoteCluster(ctx); err != nil {
			return fmt.Errorf("cannot confirm a remote pod that is missing: %w", err)
		}
		p.forgetUnconfirmed(uid)
		local := p.homePod(last)
		if item.reported || local == nil || local.DeletionTimestamp != nil || last.DeletionTimestamp != nil || p.markUnscheduledDeleted(last) || p.replacesDeleted(last) {
			p.handleDeleted(last, true)
			return nil
		}
		log.G(ctx).WithField("pod", translate.NameOf(last)).Warn("A remote pod is missing, and no watch event has reported its deletion")
		return nil
	case err != nil:
		return fmt.Errorf("cannot confirm a remote pod that a list of its API server lacks: %w", err)
	}
	if p.renewUnconfirmed(uid, found) {
		p.listWatch.relist() // the list was wrong
		p.queue.AddAfter(item, confirmInterval)
	}
	return nil
}

// renewUnconfirmed records and reports the state of an unconfirmed pod, unless it is known
// by a list again.
func (p *Provider) renewUnconfirmed(uid types.UID, found *corev1.Pod) (still bool) {
	p.mu.Lock()
	if _, still = p.unconfirmed[uid]; still {
		p.unconfirmed[uid] = found
	}
	p.mu.Unlock()
	if still {
		p.notifyStatus(found, p.status(found))
		p.watchDeletion(found)
	}
	return still
}

// hasLostLabels reports whether a remote pod of a home pod has lost labels of the provider,
// and has none of another home or node.
func (p *Provider) hasLostLabels(found *corev1.Pod, uid types.UID) bool {
	for name, value := range p.translate.Home.Labels() {
		if has := found.Labels[name]; has != "" && has != value {
			return false
		}
	}
	return !p.isOf(uid, found)
}

// restoreLabels gives found, a remote pod that has lost its labels, those that it had, if it is
// that of a home pod all the same, and reports that. If no watch has shown that it lost them,
// it has the UID still, or a container that home shows; it is deleted from then on. One that
// could be created again is left alone.
func (p *Provider) restoreLabels(name types.NamespacedName, uid types.UID, found *corev1.Pod) bool {
	if !p.hasLostLabels(found, uid) {
		return false
	}
	if last := p.unconfirmedPod(uid); last != nil {
		if last.UID != found.UID {
			return false
		}
		found.Labels, found.Annotations = last.Labels, last.Annotations
		return true
	}
	local := p.localPod(name, uid)
	if local == nil || p.cfg.Evicted == Restart && translate.MayRestart(local, &found.Status) {
		return false
	}
	if of := translate.UIDOf(found); of != uid && (of != "" || !shareContainer(&local.Status, &found.Status)) {
		return false
	}
	for label, value := range p.translate.Home.LabelsOf(name.Namespace, uid) {
		metav1.SetMetaDataLabel(&found.ObjectMeta, label, value)
	}
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, translate.AnnotationName, name.Name)
	p.confirmLater(found, true)
	return true
}

// shareContainer reports whether two statuses have a container in common.
func shareContainer(a, b *corev1.PodStatus) bool {
	return slices.ContainsFunc(a.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.ContainerID != "" && slices.ContainsFunc(b.ContainerStatuses, func(d corev1.ContainerStatus) bool { return c.ContainerID == d.ContainerID })
	})
}

// deleteUnlabelled deletes a remote pod that has lost its labels, and runs on: the provider
// could not find it later. Its home pod is shown as before until it is gone.
func (p *Provider) deleteUnlabelled(ctx context.Context, item workItem, last, found *corev1.Pod) error {
	if !p.mayBegin() {
		p.queue.AddAfter(item, mayBeginInterval)
		return nil
	}
	if found.DeletionTimestamp == nil {
		grace := ptr.Deref(found.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		if err := p.delete(ctx, found, grace); err != nil && !apierror.IsNotFound(err) && !errdefs.IsConflict(err) {
			return err
		}
		p.recordEvent(p.homePodWithStatus(last, last.Status), corev1.EventTypeWarning, "RemotePodUnlabelled",
			fmt.Sprintf("The remote pod has lost labels %s*, and is deleted", translate.Prefix))
	}
	found.Labels, found.Annotations = last.Labels, last.Annotations
	if p.renewUnconfirmed(item.uid, found) {
		p.queue.AddAfter(item, unlabelledInterval)
	}
	return nil
}

// isOf reports whether a remote pod is the one of a home pod.
func (p *Provider) isOf(uid types.UID, found *corev1.Pod) bool {
	return p.translate.Home.Owns(found) && translate.UIDOf(found) == uid
}

// remotePods returns the remote pods of this node that are in the cache or unconfirmed.
func (p *Provider) remotePods() (remotes []*corev1.Pod) {
	for _, obj := range p.informer.GetStore().List() {
		if remote, ok := obj.(*corev1.Pod); ok {
			remotes = append(remotes, remote)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, remote := range p.unconfirmed {
		remotes = append(remotes, remote)
	}
	return remotes
}
