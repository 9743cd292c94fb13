package kubernetes

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// overdueAfter is how long after its grace period a remote pod that is deleted there
// has to be gone. One that is not is on a node that does not answer: it stays until
// that node is back or removed, which may be never.
const overdueAfter = time.Minute

// overdueMessage is for people, in the status of the pod at home.
const overdueMessage = "The pod is deleted in the remote cluster, where its node does not confirm that it has stopped"

// watchEnd has a remote pod that somebody else deletes looked at when it should be
// gone. By the clock of this machine: how long it has been under way is not known,
// and clocks differ.
func (p *Provider) watchEnd(remote *corev1.Pod) {
	if !p.isTaken(remote) {
		return
	}
	p.mu.Lock()
	outstayed, known := p.ending[remote.UID]
	p.ending[remote.UID] = outstayed
	p.mu.Unlock()
	if !known {
		p.errands.AddAfter(errand{uid: translate.UIDOf(remote)}, graceOf(remote)+overdueAfter)
	}
}

// isTaken tells whether a remote pod is deleted by somebody else, and has not ended.
func (p *Provider) isTaken(remote *corev1.Pod) bool {
	if remote.DeletionTimestamp == nil || ended(remote) {
		return false
	}
	local := p.local(remote)
	return local != nil && local.DeletionTimestamp == nil
}

// failsWhenOverdue reports whether the pod at home of a remote pod that should have been
// gone by now fails, for its controller to make another. The containers may run on, on a
// node that is cut off. So one of a StatefulSet does not: its next pod has the same
// identity, and the same data. As at any node that does not answer it stays until
// somebody deletes it, or the remote node is back or removed.
func (p *Provider) failsWhenOverdue(remote *corev1.Pod) bool {
	local := p.local(remote)
	if local == nil {
		return true
	}
	owner := metav1.GetControllerOf(local)
	return owner == nil || owner.Kind != "StatefulSet"
}

// hasOutstayed reports whether a remote pod should have been gone by now.
func (p *Provider) hasOutstayed(remote *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending[remote.UID] && remote.DeletionTimestamp != nil
}

// checkEnd tells of a pod at home if its remote one should have been gone by now, and
// is there. An error means that it is not known: the remote cluster may be away.
func (p *Provider) checkEnd(ctx context.Context, uid types.UID) error {
	for _, heard := range p.heardOf(uid) {
		if !p.isTaken(heard) {
			continue
		}
		name := translate.NameOf(heard)
		remote, err := p.find(ctx, name.Namespace, name.Name, uid)
		switch {
		case errdefs.IsNotFound(err):
			continue
		case err != nil:
			return err
		case remote.UID != heard.UID || !p.isTaken(remote):
			continue
		}
		p.mu.Lock()
		p.ending[remote.UID] = true
		p.mu.Unlock()
		p.event(p.atHome(remote, remote.Status), corev1.EventTypeWarning, "RemotePodLost", overdueMessage)
		p.tell(remote, p.status(remote))
	}
	return nil
}

// forgetEnding forgets the remote pods that are gone.
func (p *Provider) forgetEnding(remote []*corev1.Pod) {
	present := map[types.UID]struct{}{}
	for _, pod := range remote {
		present[pod.UID] = struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.ending, func(uid types.UID, _ bool) bool { _, ok := present[uid]; return !ok })
}

func graceOf(remote *corev1.Pod) time.Duration {
	return time.Duration(ptr.Deref(remote.DeletionGracePeriodSeconds, 0)) * time.Second
}

// isOverdue tells the same of a remote pod by its own words, as far as clocks agree:
// enough to decide how soon to ask again.
func isOverdue(remote *corev1.Pod) bool {
	return remote.DeletionTimestamp != nil && time.Since(remote.DeletionTimestamp.Time) > overdueAfter
}
