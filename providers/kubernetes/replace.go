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
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// The back-off before a remote pod is created again is the kubelet's for containers
// that crash: none the first time, then minReplaceBackoff, doubled each time up to
// maxReplaceBackoff. It is reset once a pod has run for replaceBackoffReset.
const (
	minReplaceBackoff   = 10 * time.Second
	maxReplaceBackoff   = 5 * time.Minute
	replaceBackoffReset = 10 * time.Minute
)

// replacement is a remote pod that was evicted or deleted, and is to be created again.
type replacement struct {
	remote *corev1.Pod // the last observed state; see isStandIn
	delay  time.Duration
	due    time.Time
	warned string // the error in the last event
}

// replaceBackoff is when a remote pod was last created again, and the next back-off.
type replaceBackoff struct {
	at   time.Time
	next time.Duration
}

// replacesEnded reports whether a remote pod that was evicted, or has terminated
// because somebody else deletes it, is to be created again.
func (p *Provider) replacesEnded(remote *corev1.Pod) bool {
	return (translate.Evicted(remote) || translate.EndedByDeletion(remote)) && p.mayReplace(remote)
}

// replacesDeleted reports whether a remote pod that is gone from the remote API, not
// deleted by this node, is to be created again.
func (p *Provider) replacesDeleted(remote *corev1.Pod) bool {
	return (!ended(remote) || translate.Evicted(remote) || translate.EndedByDeletion(remote)) && p.mayReplace(remote)
}

// mayReplace reports whether the configuration and the home pod allow a remote pod to
// be created again.
func (p *Provider) mayReplace(remote *corev1.Pod) bool {
	if p.cfg.Evicted != Restart {
		return false
	}
	local := p.homePod(remote)
	return local != nil && local.DeletionTimestamp == nil && !ended(local) &&
		translate.MayRestart(local, &remote.Status) && translate.MayRestart(local, &local.Status)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// scheduleReplacement queues a remote pod to be created again after its back-off.
func (p *Provider) scheduleReplacement(remote *corev1.Pod) { p.prepareReplacement(remote)() }

// prepareReplacement records a replacement. It is queued when the caller calls begin.
func (p *Provider) prepareReplacement(remote *corev1.Pod) (begin func()) {
	uid := translate.UIDOf(remote)
	p.mu.Lock()
	next := p.replacements[uid]
	if next == nil {
		next = &replacement{remote: remote}
		if last, ok := p.backoffs[uid]; ok && time.Since(last.at) < replaceBackoffReset {
			next.delay = last.next
		}
		next.due = time.Now().Add(next.delay)
	} else { // update its last observed state
		next = &replacement{remote: remote, delay: next.delay, due: next.due, warned: next.warned}
	}
	p.replacements[uid] = next
	rest := time.Until(next.due)
	p.mu.Unlock()
	return func() { p.queue.AddAfter(workItem{uid: uid}, rest) }
}

// replacementOf returns the pending replacement of a home pod's remote pod, or nil.
func (p *Provider) replacementOf(uid types.UID) *replacement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replacements[uid]
}

// awaitingReplacement returns the remote pods with a pending replacement that are not
// in the cache any more.
func (p *Provider) awaitingReplacement() (remotes []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, next := range p.replacements {
		if keys, err := p.informer.GetIndexer().IndexKeys(byUID, string(uid)); err == nil && len(keys) == 0 && p.unconfirmed[uid] == nil {
			remotes = append(remotes, next.remote)
		}
	}
	return remotes
}

// replacementStatus returns the status of a home pod whose remote pod is to be created
// again.
func (p *Provider) replacementStatus(remote *corev1.Pod) corev1.PodStatus {
	status, delay := corev1.PodStatus{}, time.Duration(0)
	if isStandIn(remote) { // it has the status of the home pod
		status = *remote.Status.DeepCopy()
	} else {
		status = p.translate.Status(remote)
	}
	if next := p.replacementOf(translate.UIDOf(remote)); next != nil {
		delay = next.delay
	}
	return translate.Waiting(status, delay)
}

// cancelReplacement drops the pending replacement of a pod.
func (p *Provider) cancelReplacement(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.replacements, uid)
}

// forgetBackoffs drops the back-offs of pods that are not in kept.
func (p *Provider) forgetBackoffs(kept map[types.UID]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.backoffs, func(uid types.UID, _ replaceBackoff) bool { _, ok := kept[uid]; return !ok })
}

// replace creates a remote pod again that was evicted or deleted. Without a pending
// replacement it checks a remote pod that is being deleted.
func (p *Provider) replace(ctx context.Context, uid types.UID) error {
	next := p.replacementOf(uid)
	if next == nil {
		return p.checkDeletion(ctx, uid)
	}
	local := p.homePod(next.remote)
	if local == nil || local.DeletionTimestamp != nil || ended(local) {
		p.cancelReplacement(uid)
		p.reflector.UnregisterPod(uid)
		return nil
	}
	if rest := time.Until(next.due); rest > 0 {
		p.queue.AddAfter(workItem{uid: uid}, rest)
		return nil
	}
	if !p.mayBegin() { // another process may hold the node, and home may have deleted the pod
		p.queue.AddAfter(workItem{uid: uid}, mayBeginInterval)
		return nil
	}
	err := p.createReplacement(ctx, local, next)
	if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
		return err
	}
	p.mu.Lock()
	isNew := next.warned != err.Error()
	next.warned = err.Error()
	p.mu.Unlock()
	if isNew {
		p.recordEvent(local, corev1.EventTypeWarning, "RemotePodNotReplaced", err.Error())
	}
	return err
}

// createReplacement makes one attempt to create a remote pod again.
func (p *Provider) createReplacement(ctx context.Context, local *corev1.Pod, next *replacement) error {
	uid, remote := local.UID, next.remote
	wanted, err := p.prepareSuccessor(ctx, local, remote)
	if err != nil || wanted == nil {
		return err
	}
	created, err := p.remote.CoreV1().Pods(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: translate.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err) && p.isRecreated(ctx, remote):
		p.cancelReplacement(uid)
		return nil
	case apierror.IsNotFound(err): // the namespace was deleted, with all that the pod needs
		p.forgetNamespace(wanted.Namespace)
		return errors.Join(err, p.ensureNamespace(ctx, wanted.Namespace))
	case err != nil:
		return err
	}
	if err := p.checkCreated(ctx, local, created); err != nil {
		p.postpone(uid, maxReplaceBackoff)
		return err
	}
	if !p.recordReplaced(next, created) { // home has deleted its pod meanwhile, and found no remote one
		p.deleteLater(created)
		return nil
	}
	p.recordEvent(p.homePodWithStatus(remote, remote.Status), corev1.EventTypeWarning, "RemotePodReplaced", "The remote pod was evicted or deleted; it was created again")
	return nil
}

// recordReplaced records that a remote pod was created again. It reports whether that
// is still wanted.
func (p *Provider) recordReplaced(next *replacement, created *corev1.Pod) bool {
	uid := translate.UIDOf(next.remote)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.replacements[uid]
	if now == nil {
		return false
	}
	delay := periodic.Doubled(next.delay, minReplaceBackoff, maxReplaceBackoff)
	p.backoffs[uid] = replaceBackoff{at: time.Now(), next: delay}
	if now.remote.UID == created.UID { // it was evicted or deleted already
		now.delay, now.due = delay, time.Now().Add(delay)
	} else {
		delete(p.replacements, uid)
	}
	return true
}

// postpone delays the creation of a remote pod.
func (p *Provider) postpone(uid types.UID, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := p.replacements[uid]; next != nil {
		next.delay, next.due = delay, time.Now().Add(delay)
	}
}

// prepareSuccessor returns the pod to create in place of a remote pod, and deletes what
// is left of that. It returns nil if the remote pod is still running.
func (p *Provider) prepareSuccessor(ctx context.Context, local, remote *corev1.Pod) (*corev1.Pod, error) {
	again := func() (*corev1.Pod, error) { return translate.Recreate(remote), nil }
	if p.service != nil || isStandIn(remote) { // a service need not take back what it has added to a pod
		again = func() (*corev1.Pod, error) { return p.podAgain(ctx, local, remote) }
	}
	if isStandIn(remote) {
		return again()
	}
	found, err := p.remote.CoreV1().Pods(remote.Namespace).Get(ctx, remote.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return again()
	case err != nil:
		return nil, fmt.Errorf("cannot read the pod in the remote cluster: %w", err)
	case !p.translate.Home.Owns(found): // somebody has removed the labels, so the pod is not this node's
		return nil, p.translate.Home.NameConflict("Pod", found)
	case found.UID != remote.UID:
		return again()
	case !ended(found): // it is still running
		p.cancelReplacement(local.UID)
		p.markUnconfirmed(found)
		p.notifyStatus(found, p.status(found))
		return nil, nil
	}
	if err := p.delete(ctx, found, minGracePeriod); err != nil && !apierror.IsNotFound(err) && !apierrors.IsConflict(err) {
		return nil, err
	}
	return again()
}

// isRecreated reports whether the home pod has another remote pod already.
func (p *Provider) isRecreated(ctx context.Context, remote *corev1.Pod) bool {
	name := translate.NameOf(remote)
	found, err := p.find(ctx, name.Namespace, name.Name, translate.UIDOf(remote))
	return err == nil && found.UID != remote.UID
}
