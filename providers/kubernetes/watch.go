package kubernetes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
				p.services.Look(translate.NameOf(remote).Namespace)
			}
		},
		UpdateFunc: func(before, after any) {
			// Between two watches one may have gone, and another of its name come.
			was, ok := before.(*corev1.Pod)
			if is, also := after.(*corev1.Pod); ok && also && translate.UIDOf(was) != translate.UIDOf(is) {
				p.deleted(was)
			}
			changed(after)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
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
		p.reflector.Forget(translate.UIDOf(remote))
		return
	}
	local := p.local(remote)
	if local != nil && local.DeletionTimestamp == nil && p.restarts(local, remote) {
		p.tell(remote, translate.Waiting(p.translate.Status(remote)))
		p.expect(remote)
		return
	}
	p.tell(remote, translate.Gone(p.translate.Status(remote), "The pod was deleted in the remote cluster", metav1.Now()))
	p.reflector.Forget(translate.UIDOf(remote))
}

// replaces tells whether a remote pod that was evicted is to be replaced.
func (p *Provider) replaces(remote *corev1.Pod) bool {
	if p.cfg.Evicted != Restart || !translate.Evicted(remote) || !translate.MayStartAgain(remote) {
		return false
	}
	local := p.local(remote)
	return local != nil && local.DeletionTimestamp == nil && !ended(local) && translate.MayStartAgain(local)
}

// restarts tells whether a remote pod that was deleted, not by us, is to be
// replaced.
func (p *Provider) restarts(local, remote *corev1.Pod) bool {
	return p.cfg.Evicted == Restart && translate.MayStartAgain(remote) && translate.MayStartAgain(local) && !ended(local) &&
		(!ended(remote) || translate.Evicted(remote))
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// expect has a remote pod created again.
func (p *Provider) expect(remote *corev1.Pod) {
	uid := translate.UIDOf(remote)
	p.mu.Lock()
	p.gone[uid] = remote
	p.mu.Unlock()
	p.errands.Add(errand{uid: uid})
}

// waitingAgain returns the remote pod that is to be created again for a pod, or
// nil.
func (p *Provider) waitingAgain(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[uid]
}

// forgetGone creates nothing again for a pod.
func (p *Provider) forgetGone(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, uid)
}

// replace has a remote pod that the remote cluster took away created again, and
// looks at one that it is about to.
func (p *Provider) replace(ctx context.Context, uid types.UID) error {
	remote := p.waitingAgain(uid)
	if remote == nil {
		return p.checkEnd(ctx, uid)
	}
	local := p.local(remote)
	if local == nil || local.DeletionTimestamp != nil || ended(local) {
		p.forgetGone(uid)
		p.reflector.Forget(uid)
		return nil
	}
	next, err := p.successor(ctx, local, remote)
	if err != nil {
		return err
	}
	_, err = p.remote.CoreV1().Pods(next.Namespace).Create(ctx, next, metav1.CreateOptions{FieldManager: translate.FieldManager})
	if err != nil {
		if apierrors.IsAlreadyExists(err) && p.isBack(ctx, remote) {
			p.forgetGone(uid)
			return nil
		}
		if apierrors.IsNotFound(err) { // the namespace has gone, and all that the pod needs
			p.forgetNamespace(next.Namespace)
			err = errors.Join(err, p.ensureNamespace(ctx, next.Namespace))
		}
		return err
	}
	p.forgetGone(uid)
	p.event(p.atHome(remote, remote.Status), corev1.EventTypeWarning, "RemotePodReplaced", "The remote cluster took the pod away; it was created there again")
	return nil
}

// successor makes way for the remote pod that takes the place of another, and
// returns it.
func (p *Provider) successor(ctx context.Context, local, remote *corev1.Pod) (*corev1.Pod, error) {
	if isLost(remote) {
		return p.anew(ctx, local)
	}
	found, err := p.remote.CoreV1().Pods(remote.Namespace).Get(ctx, remote.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return translate.Again(remote), nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the pod in the remote cluster: %w", err)
	case !p.translate.Home.Owns(found): // somebody has taken the labels away, and so the pod
		err := p.translate.Home.Clash("Pod", found)
		p.event(local, corev1.EventTypeWarning, "RemotePodNotReplaced", err.Error())
		return nil, err
	case found.UID == remote.UID:
		if err := p.delete(ctx, found, atOnce); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return translate.Again(remote), nil
}

// isBack tells whether there is another remote pod for the same one at home.
func (p *Provider) isBack(ctx context.Context, remote *corev1.Pod) bool {
	name := translate.NameOf(remote)
	found, err := p.find(ctx, name.Namespace, name.Name, translate.UIDOf(remote))
	return err == nil && found.UID != remote.UID
}
