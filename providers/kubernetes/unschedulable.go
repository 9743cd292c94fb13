package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// unscheduledPod is a remote pod without a node.
type unscheduledPod struct {
	since   time.Time // by the local clock: clocks differ
	failure string    // the message with which the home pod fails; empty while the remote pod waits
	deleted bool      // the remote pod is gone, so the home pod has failed
}

// watchScheduling queues a remote pod without a node for when its time is up, if
// configured.
func (p *Provider) watchScheduling(remote *corev1.Pod) {
	if p.cfg.Unschedulable.Then != FailUnscheduled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.unscheduled[remote.UID]
	switch {
	case !isUnscheduled(remote):
		if known && !w.deleted {
			delete(p.unscheduled, remote.UID)
		}
	case !known:
		p.unscheduled[remote.UID] = &unscheduledPod{since: time.Now()}
		p.queue.AddAfter(workItem{uid: translate.UIDOf(remote), unscheduled: true}, p.cfg.Unschedulable.After.Duration)
	}
}

// isUnscheduled reports whether a remote pod waits to be scheduled. One with scheduling
// gates is held back on purpose. A service need not show the names of its nodes: there the
// status says that a pod has one.
func isUnscheduled(remote *corev1.Pod) bool {
	s := &remote.Status
	placed := remote.Spec.NodeName != "" || s.HostIP != "" || s.StartTime != nil || len(s.ContainerStatuses) > 0 || s.Phase == corev1.PodRunning ||
		slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue
		})
	return !placed && len(remote.Spec.SchedulingGates) == 0 && remote.DeletionTimestamp == nil && !ended(remote)
}

// failUnscheduled deletes a remote pod whose time is up, if it still has no node. The
// home pod fails once the remote pod is gone, so that nothing runs of a pod that has
// failed: see markUnscheduledDeleted. An error means that the state is unknown: the
// remote cluster may be unreachable.
func (p *Provider) failUnscheduled(ctx context.Context, uid types.UID) error {
	for _, seen := range p.observedPods(uid) {
		after, due := p.cfg.Unschedulable.After.Duration, p.remainingScheduleTime(seen)
		if due > 0 {
			p.queue.AddAfter(workItem{uid: uid, unscheduled: true}, due)
		}
		local := p.homePod(seen)
		if due != 0 || local == nil || local.DeletionTimestamp != nil {
			continue
		}
		if !p.mayBegin() {
			p.queue.AddAfter(workItem{uid: uid, unscheduled: true}, mayBeginInterval)
			continue
		}
		remote, err := p.readAgain(ctx, seen, uid)
		switch {
		case err != nil:
			return err
		case remote == nil || !isUnscheduled(remote):
			continue
		}
		message := fmt.Sprintf("The remote cluster has not scheduled the pod within %v", after)
		if why := unschedulableMessage(remote); why != "" {
			message += ": " + why
		}
		p.setUnscheduledFailure(remote, message) // the watch may report the deletion before the response comes
		err = p.remote.CoreV1().Pods(remote.Namespace).Delete(ctx, remote.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &remote.UID, ResourceVersion: &remote.ResourceVersion},
		})
		if apierrors.IsConflict(err) {
			p.setUnscheduledFailure(remote, "") // it may have a node by now
		}
		if err != nil && !apierror.IsNotFound(err) {
			return fmt.Errorf("delete the pod in the remote cluster, which has no node: %w", err)
		}
		p.recordEvent(local, corev1.EventTypeWarning, translate.ReasonUnschedulable, message)
	}
	return nil
}

// remainingScheduleTime returns how long a remote pod may still wait. It is 0 if the
// time is up, also after a deletion that failed, and negative for a pod that does not
// wait.
func (p *Provider) remainingScheduleTime(remote *corev1.Pod) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.unscheduled[remote.UID]
	if w == nil || w.deleted {
		return -1
	}
	return max(time.Until(w.since.Add(p.cfg.Unschedulable.After.Duration)), 0)
}

// setUnscheduledFailure sets the message with which a pod fails, or clears it.
func (p *Provider) setUnscheduledFailure(remote *corev1.Pod, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.unscheduled[remote.UID]; w != nil {
		w.failure = message
	}
}

// markUnscheduledDeleted records that a remote pod is gone. It reports whether it was
// deleted because it had no node.
func (p *Provider) markUnscheduledDeleted(remote *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.unscheduled[remote.UID]
	if w == nil || w.failure == "" {
		return false
	}
	w.deleted = true
	return true
}

// unscheduledFailure returns the message of a pod that has failed because it had no
// node, or "".
func (p *Provider) unscheduledFailure(remote *corev1.Pod) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.unscheduled[remote.UID]; w != nil && w.deleted {
		return w.failure
	}
	return ""
}

// forgetUnscheduled drops the remote pods that are gone, once the pods that fail for it have.
func (p *Provider) forgetUnscheduled(remote []*corev1.Pod) {
	present := map[types.UID]struct{}{}
	for _, pod := range remote {
		present[pod.UID] = struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.unscheduled, func(uid types.UID, w *unscheduledPod) bool {
		_, ok := present[uid]
		return !ok && (w.failure == "" || w.deleted)
	})
}

// unschedulableMessage returns the message of the remote scheduler.
func unschedulableMessage(remote *corev1.Pod) string {
	for _, c := range remote.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
