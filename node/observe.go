package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// observe takes a notification of the provider. It may come at any time, from
// any goroutine, for any pod, and the pod may change as soon as it returns.
func (pc *PodController) observe(pod *corev1.Pod) {
	if pod == nil || pod.Name == "" || pod.Namespace == "" || pod.Status.Phase == "" {
		return
	}
	key := keyOf(pod)
	r := pc.records.get(key)
	if r == nil {
		if pc.informer.HasSynced() {
			if _, err := pc.pods.Pods(pod.Namespace).Get(pod.Name); err != nil {
				return // deleted already, or never ours
			}
		}
		r = pc.records.getOrAdd(key)
	}
	status := pod.Status.DeepCopy()

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod == nil {
		r.early = &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Status: *status}
		return
	}
	if !pc.identity.same(r.pod, pod) {
		return
	}
	ended := r.stopped()
	if !pc.accept(r, status, pc.heard.Load()) {
		return
	}
	pc.statuses.Add(key)
	if r.stopped() != ended {
		pc.syncs.Add(key)
	}
}

// accept takes status as the newest word on the record's pod, unless something
// newer was heard since the provider was asked (on the count of observations),
// or it would take back an end. r.mu is held.
func (pc *PodController) accept(r *podRecord, status *corev1.PodStatus, asked uint64) bool {
	if status.Phase == "" || r.heard > asked {
		return false
	}
	if r.report != nil && isTerminal(r.report.Phase) && !isTerminal(status.Phase) {
		return false
	}
	r.report = status
	r.heard = pc.heard.Add(1)
	return true
}

// say takes the controller's own word as the newest on the record's pod.
func (pc *PodController) say(key string, r *podRecord, status *corev1.PodStatus) {
	r.mu.Lock()
	pc.accept(r, status, pc.heard.Load())
	r.mu.Unlock()
	pc.statuses.Add(key)
}

// seed takes what the provider lists at start-up, so that it does not have to
// be asked for each pod. A list that fails is no harm: then it is asked.
func (pc *PodController) seed(ctx context.Context) {
	asked := pc.heard.Load()
	found, err := pc.backend.list(ctx)
	if err != nil {
		log.G(ctx).WithError(err).Warn("The provider cannot list its pods; it is asked for each of them instead")
		return
	}
	for _, pod := range found { // first learn whether it keeps UIDs, then compare
		if ours, err := pc.podInAPI(ctx, pod.Namespace, pod.Name); err == nil && ours != nil && ours.UID == pod.UID {
			pc.identity.keepsUIDs.Store(true)
			break
		}
	}
	for _, pod := range found {
		ours, err := pc.podInAPI(ctx, pod.Namespace, pod.Name)
		if err != nil || ours == nil || !pc.identity.same(ours, pod) {
			continue // orphans and replaced pods are dealt with in their own time
		}
		if pod.Status.Phase == "" {
			continue
		}
		r := pc.records.getOrAdd(keyOf(pod))
		r.mu.Lock()
		if r.early == nil { // what it notified meanwhile is newer
			r.adopt(ours)
			r.inspected = time.Now()
			pc.take(r, pod.DeepCopy(), asked)
		}
		r.mu.Unlock()
		pc.statuses.Add(keyOf(pod))
	}
}
