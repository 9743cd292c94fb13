package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// The delays before a remote pod is created again, which follow the kubelet's of
// containers that crash: none the first time, then minReplaceDelay, doubled each time
// up to maxReplaceDelay. One that has stayed for forgetReplaced begins from none.
const (
	minReplaceDelay = 10 * time.Second
	maxReplaceDelay = 5 * time.Minute
	forgetReplaced  = 10 * time.Minute
)

// replacement is a remote pod that was taken away, and is to be created again.
type replacement struct {
	remote *corev1.Pod // as it was last; see isLost
	delay  time.Duration
	due    time.Time
	warned string // the error of the last event
}

// replaced is when a remote pod was last created again, and how long the next time
// waits.
type replaced struct {
	at   time.Time
	next time.Duration
}

// replaces reports whether a remote pod that was evicted, or has ended because
// somebody else deletes it, is to be replaced.
func (p *Provider) replaces(remote *corev1.Pod) bool {
	return (translate.Evicted(remote) || translate.EndedByDeletion(remote)) && p.mayReplace(remote)
}

// restarts reports whether a remote pod that was deleted, not by this node, is to be
// replaced.
func (p *Provider) restarts(remote *corev1.Pod) bool {
	return (!ended(remote) || translate.Evicted(remote) || translate.EndedByDeletion(remote)) && p.mayReplace(remote)
}

// mayReplace reports whether the configuration, and the pod at home, let a remote pod
// that was taken away be created again.
func (p *Provider) mayReplace(remote *corev1.Pod) bool {
	if p.cfg.Evicted != Restart || !translate.MayRestart(remote) {
		return false
	}
	local := p.local(remote)
	return local != nil && local.DeletionTimestamp == nil && !ended(local) && translate.MayRestart(local)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// expect has a remote pod created again, after a delay that grows with the number of
// times.
func (p *Provider) expect(remote *corev1.Pod) { p.expectLater(remote)() }

// expectLater is expect, from when begin is called on.
func (p *Provider) expectLater(remote *corev1.Pod) (begin func()) {
	uid := translate.UIDOf(remote)
	p.mu.Lock()
	next := p.gone[uid]
	if next == nil {
		next = &replacement{remote: remote}
		if last, ok := p.replaced[uid]; ok && time.Since(last.at) < forgetReplaced {
			next.delay = last.next
		}
		next.due = time.Now().Add(next.delay)
	} else { // a newer form of it
		next = &replacement{remote: remote, delay: next.delay, due: next.due, warned: next.warned}
	}
	p.gone[uid] = next
	rest := time.Until(next.due)
	p.mu.Unlock()
	return func() { p.errands.AddAfter(errand{uid: uid}, rest) }
}

// waitingAgain returns the remote pod that is to be created again for a pod, or
// nil.
func (p *Provider) waitingAgain(uid types.UID) *replacement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[uid]
}

// awaited returns the remote pods that are to be created again, and that no list or
// watch shows any more.
func (p *Provider) awaited() (remotes []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, next := range p.gone {
		if keys, err := p.informer.GetIndexer().IndexKeys(byUID, string(uid)); err == nil && len(keys) == 0 && p.doubts[uid] == nil {
			remotes = append(remotes, next.remote)
		}
	}
	return remotes
}

// waitingStatus is the status at home of a pod whose remote pod is to be created again.
func (p *Provider) waitingStatus(remote *corev1.Pod) corev1.PodStatus {
	status, delay := corev1.PodStatus{}, time.Duration(0)
	if isLost(remote) { // with the status at home
		status = *remote.Status.DeepCopy()
	} else {
		status = p.translate.Status(remote)
	}
	if next := p.waitingAgain(translate.UIDOf(remote)); next != nil {
		delay = next.delay
	}
	return translate.Waiting(status, delay)
}

// forgetGone creates nothing again for a pod.
func (p *Provider) forgetGone(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, uid)
}

// forgetReplacements forgets when the remote pods were created that are not among kept.
func (p *Provider) forgetReplacements(kept map[types.UID]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.replaced, func(uid types.UID, _ replaced) bool { _, ok := kept[uid]; return !ok })
}

// replace has a remote pod that the remote cluster took away created again, and
// looks at one that it is about to.
func (p *Provider) replace(ctx context.Context, uid types.UID) error {
	next := p.waitingAgain(uid)
	if next == nil {
		return p.checkEnd(ctx, uid)
	}
	local := p.local(next.remote)
	if local == nil || local.DeletionTimestamp != nil || ended(local) {
		p.forgetGone(uid)
		p.reflector.UnregisterPod(uid)
		return nil
	}
	if rest := time.Until(next.due); rest > 0 {
		p.errands.AddAfter(errand{uid: uid}, rest)
		return nil
	}
	if !p.mayBegin() { // another process may have the node: home may not want the pod any more
		p.errands.AddAfter(errand{uid: uid}, claimInterval)
		return nil
	}
	err := p.createAgain(ctx, local, next)
	if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
		return err
	}
	p.mu.Lock()
	isNew := next.warned != err.Error()
	next.warned = err.Error()
	p.mu.Unlock()
	if isNew {
		p.event(local, corev1.EventTypeWarning, "RemotePodNotReplaced", err.Error())
	}
	return err
}

// createAgain is one attempt of replace.
func (p *Provider) createAgain(ctx context.Context, local *corev1.Pod, next *replacement) error {
	uid, remote := local.UID, next.remote
	wanted, err := p.successor(ctx, local, remote)
	if err != nil || wanted == nil {
		return err
	}
	created, err := p.remote.CoreV1().Pods(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: translate.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err) && p.isBack(ctx, remote):
		p.forgetGone(uid)
		return nil
	case apierror.IsNotFound(err): // the namespace has gone, and all that the pod needs
		p.forgetNamespace(wanted.Namespace)
		return errors.Join(err, p.ensureNamespace(ctx, wanted.Namespace))
	case err != nil:
		return err
	}
	if err := p.checkCreated(ctx, local, created); err != nil {
		p.postpone(uid, maxReplaceDelay)
		return err
	}
	if !p.wasReplaced(next, created) { // home has deleted its pod meanwhile, and found no remote one
		p.discard(created)
		return nil
	}
	p.event(p.atHome(remote, remote.Status), corev1.EventTypeWarning, "RemotePodReplaced", "The remote cluster took the pod away; it was created there again")
	return nil
}

// wasReplaced records that a remote pod was created again. It reports whether that is
// still wanted.
func (p *Provider) wasReplaced(next *replacement, created *corev1.Pod) bool {
	uid := translate.UIDOf(next.remote)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.gone[uid]
	if now == nil {
		return false
	}
	delay := min(max(2*next.delay, minReplaceDelay), maxReplaceDelay)
	p.replaced[uid] = replaced{at: time.Now(), next: delay}
	if now.remote.UID == created.UID { // it was taken away already
		now.delay, now.due = delay, time.Now().Add(delay)
	} else {
		delete(p.gone, uid)
	}
	return true
}

// postpone has a remote pod created again no sooner than after a delay.
func (p *Provider) postpone(uid types.UID, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := p.gone[uid]; next != nil {
		next.delay, next.due = delay, time.Now().Add(delay)
	}
}

// successor makes way for the remote pod that takes the place of another, and
// returns it; nil if that one has not gone.
func (p *Provider) successor(ctx context.Context, local, remote *corev1.Pod) (*corev1.Pod, error) {
	if isLost(remote) {
		return p.anew(ctx, local)
	}
	found, err := p.remote.CoreV1().Pods(remote.Namespace).Get(ctx, remote.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return translate.Recreate(remote), nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the pod in the remote cluster: %w", err)
	case !p.translate.Home.Owns(found): // somebody has taken the labels away, and so the pod
		return nil, p.translate.Home.NameConflict("Pod", found)
	case found.UID != remote.UID:
		return translate.Recreate(remote), nil
	case !ended(found): // it is there all the same
		p.forgetGone(local.UID)
		p.doubt(found)
		p.tell(found, p.status(found))
		return nil, nil
	}
	if err := p.delete(ctx, found, atOnce); err != nil && !apierror.IsNotFound(err) && !apierrors.IsConflict(err) {
		return nil, err
	}
	return translate.Recreate(remote), nil
}

// isBack tells whether there is another remote pod for the same one at home.
func (p *Provider) isBack(ctx context.Context, remote *corev1.Pod) bool {
	name := translate.NameOf(remote)
	found, err := p.find(ctx, name.Namespace, name.Name, translate.UIDOf(remote))
	return err == nil && found.UID != remote.UID
}
