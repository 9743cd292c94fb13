package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// doubtInterval is how often the remote API server is asked for a pod that it has, but
// left out of a list.
const doubtInterval = 30 * time.Second

// doubt is for a remote pod that a list lacks, of which no watch has reported that it was
// deleted. The list may be of an older state, or another cluster's: the pod is shown as
// it was until the remote API server has been asked for it.
func (p *Provider) doubt(remote *corev1.Pod) {
	uid := translate.UIDOf(remote)
	if p.isListed(remote) { // by now
		return
	}
	p.mu.Lock()
	p.doubts[uid] = remote
	p.mu.Unlock()
	p.errands.Add(errand{uid: uid, doubtful: true})
}

// isListed reports whether the last list, and the watch that followed, have a remote pod.
func (p *Provider) isListed(remote *corev1.Pod) bool {
	obj, ok, err := p.informer.GetStore().GetByKey(remote.Namespace + "/" + remote.Name)
	if err != nil || !ok {
		return false
	}
	listed, ok := obj.(*corev1.Pod)
	return ok && listed.UID == remote.UID && translate.UIDOf(listed) == translate.UIDOf(remote)
}

// doubtful returns the remote pod of one at home that a list lacks, or nil.
func (p *Provider) doubtful(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doubts[uid]
}

// forgetDoubt is for a pod that is known to be there, or not to be.
func (p *Provider) forgetDoubt(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.doubts, uid)
}

// confirm asks the remote API server for a pod that a list lacks, until that has it
// again. One that does not exist is no longer shown. Where that was to be expected, or
// is made good, it counts as deleted; else the node decides, which does not take many
// pods for lost at once. An error means that it is not known.
func (p *Provider) confirm(ctx context.Context, uid types.UID) error {
	last := p.doubtful(uid)
	if last == nil {
		return nil
	}
	found, err := p.remote.CoreV1().Pods(last.Namespace).Get(ctx, last.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err) || err == nil && !p.isOf(uid, found):
		p.forgetDoubt(uid)
		local := p.local(last)
		if local == nil || local.DeletionTimestamp != nil || last.DeletionTimestamp != nil || p.isGivenUp(last) || p.restarts(last) {
			p.deleted(last)
			return nil
		}
		log.G(ctx).WithField("pod", translate.NameOf(last)).Warn("A remote pod is missing; nothing says that it was deleted")
		return nil
	case err != nil:
		return fmt.Errorf("cannot read a pod in the remote cluster that a list of its API server lacks: %w", err)
	}
	p.mu.Lock()
	_, still := p.doubts[uid]
	if still {
		p.doubts[uid] = found
	}
	p.mu.Unlock()
	if still {
		p.tell(found, p.status(found))
		p.watchEnd(found)
		p.feed.again() // the list was wrong
		p.errands.AddAfter(errand{uid: uid, doubtful: true}, doubtInterval)
	}
	return nil
}

// isOf reports whether a remote pod is that of one at home.
func (p *Provider) isOf(uid types.UID, found *corev1.Pod) bool {
	return p.translate.Home.Owns(found) && translate.UIDOf(found) == uid
}

// remotePods are the remote pods of this node, as far as they are known.
func (p *Provider) remotePods() (remotes []*corev1.Pod) {
	for _, obj := range p.informer.GetStore().List() {
		if remote, ok := obj.(*corev1.Pod); ok {
			remotes = append(remotes, remote)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, remote := range p.doubts {
		remotes = append(remotes, remote)
	}
	return remotes
}
