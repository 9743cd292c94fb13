package kubernetes

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// deletionDeadline is how long after its grace period a remote pod that is being
// deleted has to be gone. If it is not, its node does not respond: the pod stays until
// that node is back or removed, which may be never.
const deletionDeadline = time.Minute

// deadlineMessage is the message in the status of the home pod.
const deadlineMessage = "The pod is deleted in the remote cluster, but its node does not confirm that it has stopped"

// watchDeletion checks a remote pod that somebody else deletes again after its
// deadline. The deadline is counted from now, by the local clock: clocks differ.
func (p *Provider) watchDeletion(remote *corev1.Pod) {
	if !p.isDeletedRemotely(remote) {
		return
	}
	p.mu.Lock()
	missed, known := p.deleting[remote.UID]
	p.deleting[remote.UID] = missed
	p.mu.Unlock()
	if !known {
		p.queue.AddAfter(workItem{uid: translate.UIDOf(remote)}, gracePeriodOf(remote)+deletionDeadline)
	}
}

// isDeletedRemotely reports whether a remote pod is being deleted by somebody else and
// has not terminated.
func (p *Provider) isDeletedRemotely(remote *corev1.Pod) bool {
	if remote.DeletionTimestamp == nil || ended(remote) {
		return false
	}
	local := p.homePod(remote)
	return local != nil && local.DeletionTimestamp == nil
}

// failsAtDeadline reports whether a home pod fails when its remote pod has missed its
// deadline, so that its controller creates another one. The containers may still run on
// a node that is cut off. A pod of a StatefulSet therefore does not fail: the next pod
// would have the same identity and the same data. As on any node that does not respond,
// it stays until somebody deletes it, or the remote node is back or removed.
func (p *Provider) failsAtDeadline(remote *corev1.Pod) bool {
	local := p.homePod(remote)
	if local == nil {
		return true
	}
	owner := metav1.GetControllerOf(local)
	return owner == nil || owner.Kind != "StatefulSet"
}

// isPastDeadline reports whether a remote pod has missed its deadline.
func (p *Provider) isPastDeadline(remote *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deleting[remote.UID] && remote.DeletionTimestamp != nil
}

// checkDeletion reports the status of a home pod if its remote pod has missed its
// deadline. An error means that this is unknown: the remote cluster may be unreachable.
func (p *Provider) checkDeletion(ctx context.Context, uid types.UID) error {
	for _, observed := range p.observedPods(uid) {
		if !p.isDeletedRemotely(observed) {
			continue
		}
		remote, err := p.readAgain(ctx, observed, uid)
		switch {
		case err != nil:
			return err
		case remote == nil || !p.isDeletedRemotely(remote):
			continue
		}
		p.mu.Lock()
		p.deleting[remote.UID] = true
		p.mu.Unlock()
		p.recordEvent(p.homePodWithStatus(remote, remote.Status), corev1.EventTypeWarning, "RemotePodLost", deadlineMessage)
		p.notifyStatus(remote, p.status(remote))
	}
	return nil
}

// forgetDeleting drops the remote pods that are gone.
func (p *Provider) forgetDeleting(remote []*corev1.Pod) {
	present := map[types.UID]struct{}{}
	for _, pod := range remote {
		present[pod.UID] = struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.deleting, func(uid types.UID, _ bool) bool { _, ok := present[uid]; return !ok })
}

func gracePeriodOf(remote *corev1.Pod) time.Duration {
	return time.Duration(ptr.Deref(remote.DeletionGracePeriodSeconds, 0)) * time.Second
}

// isLikelyPastDeadline is isPastDeadline by the timestamp of the remote pod. Clocks may
// differ, but it is good enough to choose when to retry.
func isLikelyPastDeadline(remote *corev1.Pod) bool {
	return remote.DeletionTimestamp != nil && time.Since(remote.DeletionTimestamp.Time) > deletionDeadline
}
