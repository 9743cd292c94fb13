package podlifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// deletionObservedDelay is how long a pod's last status may take to come before the
// generation of its deletion is written on its own.
const deletionObservedDelay = 5 * time.Second

// repairDelay keeps two writers that want different things of a pod from overwriting
// each other all the time.
const repairDelay = time.Second

// writeStatus brings the status of a pod in the API in line with the
// desired status, if it is not. It runs after each observation, and after each
// change in the API, so that what others overwrote is repaired.
func (pc *Controller) writeStatus(ctx context.Context, key string) (err error) {
	r, pod, err := pc.recordInAPI(ctx, key)
	if err != nil || pod == nil {
		return err
	}

	r.mu.Lock()
	if r.desiredStatus == nil {
		r.mu.Unlock()
		return nil
	}
	if pod.DeletionTimestamp != nil && r.endIsKnown() {
		r.conclude(pod)
	}
	isSent := r.sent == r.desiredStatus
	settled := isSent && r.stored == pod
	if r.stored != nil && !older(pod, r.stored) {
		// The cache has caught up with our last patch. What the API made of it
		// stands, even where it differs: repeating it would not help.
		if isSent && (r.stored.ResourceVersion == pod.ResourceVersion ||
			podstatus.Equal(&r.stored.Status, &pod.Status)) {
			settled = true
			r.store(pod)
			r.shareStatus(&pod.Status)
		}
	} else if r.stored != nil {
		pod = r.stored
		settled = isSent
	}
	report := r.desiredStatus
	observedGeneration := r.observedGeneration(pod)
	isObserved := max(pod.Status.ObservedGeneration, r.dropped) >= observedGeneration
	conditions := r.others.without(pod.Status.Conditions, report.Conditions)
	rest := repairDelay - time.Since(r.sentAt)
	settlesIn := r.deletionSettlesIn(pod)
	r.mu.Unlock()
	if isSent && !settled && rest > 0 {
		pc.statuses.AddAfter(key, rest) // somebody else's status: repair it, but not all the time
		return nil
	}
	if settled {
		switch {
		case isObserved:
			return nil
		case settlesIn > 0:
			pc.statuses.AddAfter(key, settlesIn)
			return nil
		}
	}
	if !pc.cfg.Claim.MayGoOn() { // it may be older than that of the process which has the node
		pc.statuses.AddAfter(key, claimInterval)
		return nil
	}
	return pc.patchStatus(ctx, r, pod, report, conditions, observedGeneration)
}

// patchStatus sends what differs between the pod's status and the report, of which
// these conditions count. observedGeneration is 0 if it is not known.
func (pc *Controller) patchStatus(ctx context.Context, r *podRecord, pod *corev1.Pod, report *corev1.PodStatus, conditions []corev1.PodCondition, observedGeneration int64) (err error) {
	ctx, span := startPodSpan(r.continueTrace(ctx), "writeStatus", pc.statuses, r.key(), pod)
	defer span.End()
	ctx = span.WithField(ctx, "phase", string(report.Phase))
	defer func() { span.SetStatus(err) }()

	// The patch carries no spec, hence no secret, and is guarded by the UID.
	ours := *report
	ours.Conditions = conditions
	next := mergeStatus(pod, &ours, observedGeneration, pc.cfg.HostIPs(), time.Now())
	patch, err := podstatus.Patch(pod.UID, &pod.Status, &next)
	if err != nil {
		return err
	}
	result := pod
	if patch != nil {
		result, err = pc.cfg.PodClient.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	defer pc.resumeRemoval(r)
	if err != nil {
		r.mu.Lock()
		r.refuse(report, err)
		r.mu.Unlock()
	}
	switch {
	case apierror.IsNotFound(err):
		return nil // the pod is gone; a conflict may mean that too, or that somebody else wrote
	case err != nil:
		if apierrors.IsInvalid(err) {
			pc.warn(ctx, r, pod, ReasonStatusRejected, err.Error())
		}
		return fmt.Errorf("cannot write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.mu.Lock()
	r.sent = report
	r.store(result)
	if patch != nil {
		r.sentAt = time.Now()
		pc.cfg.Metrics.StatusWritten(r.unsentSince)
		if result.Status.ObservedGeneration == 0 && next.ObservedGeneration > pod.Status.ObservedGeneration {
			r.dropped = next.ObservedGeneration
			next = withoutGenerations(next)
		}
		pc.insist(r, report, podstatus.Equal(&result.Status, &next))
	}
	if r.desiredStatus == report {
		r.unsentSince = time.Time{}
		r.settle(pod, report.Phase)
	}
	if patch == nil {
		r.shareStatus(&result.Status) // it may be that of an older form, which is kept for it
	}
	r.mu.Unlock()
	if patch != nil {
		log.G(ctx).Debug("Wrote pod status")
	}
	return nil
}

// withoutGenerations returns a status as API servers store it that have the generations of pods, but not the
// observed ones: before 1.34 by default.
func withoutGenerations(status corev1.PodStatus) corev1.PodStatus {
	status.ObservedGeneration = 0
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = 0
	}
	return status
}

// resumeRemoval removes a pod from the API whose removal has waited for its last
// status, once that is there.
func (pc *Controller) resumeRemoval(r *podRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removing && !r.awaitsLastStatus() {
		r.removing = false
		pc.removals.Add(r.key())
	}
}

// insist has a report sent again, once, if the API made something else of it:
// somebody may have written a moment before. Where the API itself does so,
// repeating it would not help. r.mu is held.
func (pc *Controller) insist(r *podRecord, report *corev1.PodStatus, taken bool) {
	switch {
	case taken:
		r.insisted = nil
	case r.insisted != report:
		r.insisted, r.sent = report, nil
		pc.statuses.AddAfter(r.key(), repairDelay)
	}
}

// deletionSettlesIn returns for how long the generation of a deletion can still wait for
// the pod's last status, so that most deletions cost one patch. r.mu is held.
func (r *podRecord) deletionSettlesIn(pod *corev1.Pod) time.Duration {
	if pod.DeletionTimestamp == nil || r.requested == requestedNone {
		return 0
	}
	return time.Until(r.requestedAt.Add(deletionObservedDelay))
}

// older reports whether pod is an older version than other. Where versions cannot
// be compared it is not.
func older(pod, other *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, other.ResourceVersion)
	return err == nil && order < 0
}

// observedGeneration returns the generation of the record's pod that has been acted
// upon, or 0 if that is not known: the one that the provider was given, or, as long as
// it was given none, the one that the controller has rejected or could not prepare. pod
// is the API's. r.mu is held.
func (r *podRecord) observedGeneration(pod *corev1.Pod) int64 {
	switch {
	case pod.DeletionTimestamp != nil && (r.requested != requestedNone || r.observed == absent && len(pod.Finalizers) > 0):
		return pod.Generation // a deletion is a generation, too
	case r.stale:
		return 0 // the provider has not seen this generation yet
	case r.lastApplied != nil:
		return r.lastApplied.Generation
	}
	return r.decided
}
