package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// observe takes a notification of the provider. It may come at any time, from
// any goroutine, for any pod, and the pod may change as soon as it returns.
func (pc *PodController) observe(ctx context.Context, pod *corev1.Pod) {
	if ctx.Err() != nil || pod == nil || pod.Name == "" || pod.Namespace == "" || pod.Status.Phase == "" {
		return
	}
	key := keyOf(pod)
	r := pc.records.get(key)
	if r == nil {
		if pc.pods.HasSynced() {
			if ours, err := pc.podInAPI(ctx, pod.Namespace, pod.Name); err != nil || ours == nil {
				return // deleted already, or never ours
			}
		}
		r = pc.records.getOrAdd(key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod == nil {
		r.early = &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Status: *pod.Status.DeepCopy()}
		pc.syncs.Add(key) // which forgets the name, should it not be ours
		return
	}
	if !pc.isOf(r, pod) || !r.mayBeKnown(pod) {
		return
	}
	pc.reappears(key, r, pod, pc.heard.Load())
	pc.listen(key, r, &pod.Status, pc.heard.Load())
}

// mayBeKnown tells whether the provider can be talking about the record's pod.
// Without a UID, what it says before it was given the pod is the last echo of
// another one that had the name. r.mu is held.
func (r *podRecord) mayBeKnown(said *corev1.Pod) bool {
	return said.UID == r.pod.UID || r.provider == held || r.creating || r.ran || r.pod.Status.Phase == corev1.PodRunning
}

// listen takes status as the provider's word on the record's pod, and has done
// what follows from it. What it keeps it copies. r.mu is held.
func (pc *PodController) listen(key string, r *podRecord, status *corev1.PodStatus, asked uint64) {
	ended := r.stopped()
	if pc.accept(r, status, asked) {
		pc.statuses.Add(key)
	}
	if r.stopped() != ended {
		pc.syncs.Add(key)
	}
}

// accept takes status as the provider's newest word on the record's pod, unless
// something newer was heard since the provider was asked (on the count of
// observations), or it would take back an end. It tells whether the API is to
// hear something new. status is the provider's: what is kept is a copy. r.mu is
// held.
func (pc *PodController) accept(r *podRecord, status *corev1.PodStatus, asked uint64) bool {
	if r.heard > asked {
		return false
	}
	r.heard = pc.heard.Add(1)
	if status.Phase == "" || r.said != nil && isTerminal(r.said.Phase) && !isTerminal(status.Phase) {
		return false
	}
	if podstatus.Equal(r.said, status) {
		status = r.said
	} else {
		status = status.DeepCopy()
	}
	r.said = status
	if r.expired && isTerminal(status.Phase) {
		if status = deadlineExceeded(status); podstatus.Equal(r.report, status) {
			return false
		}
	}
	if r.report == status || r.report != nil && isTerminal(r.report.Phase) && status.Phase != r.report.Phase {
		return false // the first end is the end, sent already or not
	}
	r.tell(status)
	return true
}

// say takes the controller's own status of a pod as the newest of its record. The
// provider's status, and whether the pod has stopped, is another matter.
func (pc *PodController) say(key string, r *podRecord, pod *corev1.Pod, status *corev1.PodStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided = generation{pod.UID, pod.Generation}
	if r.report != nil && isTerminal(r.report.Phase) && status.Phase != r.report.Phase {
		return
	}
	if !podstatus.Equal(r.report, status) {
		r.tell(status)
	}
	pc.statuses.Add(key)
}

// seed takes what the provider lists at start-up, so that it does not have to
// be asked for each pod. A list that fails is no harm: then it is asked.
func (pc *PodController) seed(ctx context.Context) error {
	asked := pc.heard.Load()
	found, err := pc.backend.list(ctx)
	if err != nil {
		log.G(ctx).WithError(err).Warn("The provider cannot list its pods; it is asked for each of them instead")
		return err
	}
	pc.listsPods = len(found) > 0
	for _, pod := range found { // first learn whether it keeps UIDs, then compare
		if ours, err := pc.podInAPI(ctx, pod.Namespace, pod.Name); err == nil && ours != nil && ours.UID == pod.UID {
			pc.identity.match(pod.UID)
		}
	}
	for _, pod := range found {
		ours, err := pc.podInAPI(ctx, pod.Namespace, pod.Name)
		if err != nil || ours == nil || pod.Status.Phase == "" {
			continue // an orphan, dealt with in its own time, or to be asked for
		}
		pc.plant(ctx, ours, pod, asked)
	}
	pc.noteStrays(ctx, found)
	return nil
}

// plant makes the record of a pod that the provider has listed at start-up.
func (pc *PodController) plant(ctx context.Context, ours, found *corev1.Pod, asked uint64) {
	r := pc.records.getOrAdd(keyOf(ours))
	r.mu.Lock()
	defer r.mu.Unlock()
	same := pc.identity.alike(ours, found)
	switch {
	case same && (r.theirs || r.early != nil):
		return // an older pod of the name goes first; what was notified is newer
	case same:
		r.adopt(ours)
		pc.statuses.Add(keyOf(ours))
		r.inspected = time.Now()
		pc.take(r, found, asked)
	case pc.backend.byUID == nil && pc.mayBeOurs(ctx, found):
		pc.inherit(r, found.DeepCopy(), asked) // ours took its name while we were down
	} // else it is not ours, or a stray
}
