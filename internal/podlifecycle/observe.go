package podlifecycle

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// observe takes a notification of the provider. It may come at any time, from
// any goroutine, for any pod, and the pod may change as soon as it returns.
func (pc *Controller) observe(ctx context.Context, pod *corev1.Pod) {
	if ctx.Err() != nil || pod == nil || pod.Name == "" || pod.Namespace == "" || pod.Status.Phase == "" {
		return
	}
	if pc.early.keep(pod) {
		return
	}
	which := pc.backend.identify(pod)
	r := pc.records.get(which.id)
	if r == nil || !which.is {
		return // it has gone, or was never ours
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mayBeKnown(pod) {
		return
	}
	if pod.UID == r.pod.UID && pod.Status.Phase != corev1.PodPending {
		r.ran = true // also if its creation is not known to have succeeded
	}
	pc.reappears(r, pod, time.Now(), pc.observations.Load())
	pc.observed(r, &pod.Status, pc.observations.Load())
}

// mayBeKnown reports whether the provider can have reported on the record's pod.
// Without a UID, what it reports before it was given the pod is the last echo of
// another one that had the name. r.mu is held.
func (r *podRecord) mayBeKnown(reported *corev1.Pod) bool {
	return reported.UID == r.pod.UID || r.observed == held || r.creating || r.ran || r.pod.Status.Phase == corev1.PodRunning
}

// earlyNotifications are those that came before the caches had synced, the newest of
// each pod.
type earlyNotifications struct {
	mu     sync.Mutex
	synced bool
	pods   map[earlyKey]*corev1.Pod
}

type earlyKey struct {
	name types.NamespacedName
	uid  types.UID
}

// keep keeps a copy of a notification until the caches have synced, and returns false
// once they have.
func (e *earlyNotifications) keep(pod *corev1.Pod) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.synced {
		return false
	}
	if e.pods == nil {
		e.pods = map[earlyKey]*corev1.Pod{}
	}
	e.pods[earlyKey{nameOf(pod), pod.UID}] = &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Status: *pod.Status.DeepCopy()}
	return true
}

// release returns what was kept, and has nothing kept from then on.
func (e *earlyNotifications) release() map[earlyKey]*corev1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	pods := e.pods
	e.synced, e.pods = true, nil
	return pods
}

// observed takes status as the provider's newest on the pod, and has done what follows
// from it. What it keeps it copies. r.mu is held.
func (pc *Controller) observed(r *podRecord, status *corev1.PodStatus, since uint64) {
	before := r.stopped()
	if pc.accept(r, status, since) {
		pc.statuses.Add(r.key())
	}
	if r.stopped() != before {
		pc.syncs.Add(r.key())
	}
}

// accept makes status the provider's newest on the pod, unless a newer one was
// observed since the provider was asked (on the count of observations), or it would
// take back an end. It reports whether the API lacks something then. status is the
// provider's: what is kept is a copy. r.mu is held.
func (pc *Controller) accept(r *podRecord, status *corev1.PodStatus, since uint64) bool {
	if r.observation > since {
		return false
	}
	if status.Phase == "" {
		return false // no word on it
	}
	r.observation = pc.observations.Add(1)
	if since < r.endSince {
		r.observation = r.endSince // it says nothing of what the containers do since
	}
	if r.providerStatus != nil && isTerminal(r.providerStatus.Phase) && !isTerminal(status.Phase) {
		return false
	}
	if podstatus.EqualReports(r.providerStatus, status) {
		status = r.providerStatus
	} else {
		status = status.DeepCopy()
	}
	r.providerStatus = status
	if r.expired && isTerminal(status.Phase) {
		if status = deadlineExceeded(status); podstatus.EqualReports(r.desiredStatus, status) {
			return false
		}
	}
	return status != r.desiredStatus && r.desire(status)
}

// decideStatus makes the controller's own status of a pod the one that the API should
// have. The provider's status, and whether the pod has stopped, is another matter.
func (pc *Controller) decideStatus(r *podRecord, pod *corev1.Pod, status *corev1.PodStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided = pod.Generation
	if podstatus.EqualReports(r.desiredStatus, status) || r.desire(status) {
		pc.statuses.Add(r.key())
	}
}

// restore makes use of what the provider has notified so far, and of what it lists at
// start-up, so that it does not have to be asked for each pod. A list that fails is no
// harm: then it is asked.
func (pc *Controller) restore(ctx context.Context) error {
	for _, pod := range pc.early.release() {
		pc.observe(ctx, pod)
	}
	since := pc.observations.Load()
	listed, err := pc.backend.list(ctx)
	if err != nil {
		log.G(ctx).WithError(err).Warn("The provider cannot list its pods; it is asked for each of them instead")
		return err
	}
	pc.listsPods = len(listed) > 0
	for _, pod := range listed { // first learn whether it keeps UIDs, then compare
		pc.backend.identify(pod)
	}
	var others []*corev1.Pod
	for _, pod := range listed {
		which := pc.backend.identify(pod)
		r := pc.records.get(which.id)
		switch {
		case r == nil || pod.Status.Phase == "":
			// an orphan, which has its own time, or to be asked for
		case which.is:
			r.mu.Lock()
			r.inspectedAt = time.Now()
			pc.recordHeld(r, pod, since)
			pc.statuses.Add(r.key())
			r.mu.Unlock()
		default:
			others = append(others, pod)
		}
	}
	for _, pod := range others { // ours took its name while we were down, unless ours was shown, too
		if r := pc.records.get(pc.backend.identify(pod).id); r != nil && !r.hasRun() && pc.mayBeOurs(ctx, pod) {
			pc.adoptOrphan(pod.DeepCopy(), true, since)
		}
	}
	pc.recordCandidates(ctx, listed)
	return nil
}
