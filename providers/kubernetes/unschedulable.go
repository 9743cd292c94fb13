package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// waiting is a remote pod that has no node.
type waiting struct {
	since   time.Time // by this machine's clock: clocks differ
	givenUp string    // why it is being removed; empty while it waits
	gone    bool      // it was removed for that
}

// watchScheduling arranges for a remote pod without a node to be looked at when its
// time is up, where the configuration says so.
func (p *Provider) watchScheduling(remote *corev1.Pod) {
	if p.cfg.Unschedulable.Then != FailUnscheduled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.waiting[remote.UID]
	switch {
	case !isUnscheduled(remote):
		if known && !w.gone {
			delete(p.waiting, remote.UID)
		}
	case !known:
		p.waiting[remote.UID] = &waiting{since: time.Now()}
		p.errands.AddAfter(errand{uid: translate.UIDOf(remote), unscheduled: true}, p.cfg.Unschedulable.After.Duration)
	}
}

// isUnscheduled reports whether a remote pod waits for a scheduler to find it a node. One
// with scheduling gates is held back on purpose.
func isUnscheduled(remote *corev1.Pod) bool {
	return remote.Spec.NodeName == "" && len(remote.Spec.SchedulingGates) == 0 && remote.DeletionTimestamp == nil && !ended(remote)
}

// failUnscheduled removes a remote pod whose time is up. It is removed first, and only as
// long as it has no node; once it is gone the one at home has failed: see isGivenUp. So
// nothing runs of a pod that has failed. An error means that it is not known: the remote cluster
// may be away.
func (p *Provider) failUnscheduled(ctx context.Context, uid types.UID) error {
	for _, seen := range p.heardOf(uid) {
		after, due := p.cfg.Unschedulable.After.Duration, p.scheduleDue(seen)
		if due > 0 {
			p.errands.AddAfter(errand{uid: uid, unscheduled: true}, due)
		}
		local := p.local(seen)
		if due != 0 || local == nil || local.DeletionTimestamp != nil {
			continue
		}
		if !p.mayBegin() {
			p.errands.AddAfter(errand{uid: uid, unscheduled: true}, claimInterval)
			continue
		}
		name := translate.NameOf(seen)
		remote, err := p.find(ctx, name.Namespace, name.Name, uid)
		switch {
		case errdefs.IsNotFound(err):
			continue
		case err != nil:
			return err
		case remote.UID != seen.UID || !isUnscheduled(remote):
			continue
		}
		message := fmt.Sprintf("The remote cluster has not scheduled the pod within %v", after)
		if why := whyUnscheduled(remote); why != "" {
			message += ": " + why
		}
		p.giveUp(remote, message) // its end may be seen before the answer
		err = p.remote.CoreV1().Pods(remote.Namespace).Delete(ctx, remote.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &remote.UID, ResourceVersion: &remote.ResourceVersion},
		})
		if apierrors.IsConflict(err) {
			p.giveUp(remote, "") // it may have a node by now
		}
		if err != nil && !apierror.IsNotFound(err) {
			return fmt.Errorf("delete the pod in the remote cluster, which has no node: %w", err)
		}
		p.event(local, corev1.EventTypeWarning, translate.ReasonUnschedulable, message)
	}
	return nil
}

// scheduleDue returns how long a remote pod may still wait; 0 for no longer, also where
// its deletion has failed, and less for one that does not wait.
func (p *Provider) scheduleDue(remote *corev1.Pod) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiting[remote.UID]
	if w == nil || w.gone {
		return -1
	}
	return max(time.Until(w.since.Add(p.cfg.Unschedulable.After.Duration)), 0)
}

// giveUp records why a pod has failed, or takes that back.
func (p *Provider) giveUp(remote *corev1.Pod, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiting[remote.UID]; w != nil {
		w.givenUp = message
	}
}

// isGivenUp reports whether a remote pod that is gone was removed because it had no node.
func (p *Provider) isGivenUp(remote *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiting[remote.UID]
	if w == nil || w.givenUp == "" {
		return false
	}
	w.gone = true
	return true
}

// givenUpFor returns why a remote pod was removed, or nothing.
func (p *Provider) givenUpFor(remote *corev1.Pod) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiting[remote.UID]; w != nil && w.gone {
		return w.givenUp
	}
	return ""
}

// forgetWaiting forgets the remote pods that are gone.
func (p *Provider) forgetWaiting(remote []*corev1.Pod) {
	present := map[types.UID]struct{}{}
	for _, pod := range remote {
		present[pod.UID] = struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.waiting, func(uid types.UID, _ *waiting) bool { _, ok := present[uid]; return !ok })
}

// whyUnscheduled is what the remote scheduler says.
func whyUnscheduled(remote *corev1.Pod) string {
	for _, c := range remote.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
