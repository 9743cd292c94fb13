package podlifecycle

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet's words about a pod that outlives its activeDeadlineSeconds.
const (
	reasonDeadlineExceeded  = "DeadlineExceeded"
	messageDeadlineExceeded = "Pod was active on the node longer than the specified deadline"
)

// deadlineLeeway is how long a provider that enforces the deadline itself has to do so
// and to report what its containers did.
const deadlineLeeway = 2 * time.Second

// enforceDeadline ends a pod whose activeDeadlineSeconds are over, counted as a kubelet
// does from its start time in the API, and so across restarts. It is Failed once the
// provider has stopped it: until then its resources are in use, and a Job that replaces
// only what has ended must not run it twice.
func (pc *Controller) enforceDeadline(r *podRecord, pod *corev1.Pod) {
	if pod == nil || pod.Spec.ActiveDeadlineSeconds == nil || pod.DeletionTimestamp != nil || isTerminal(pod.Status.Phase) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended() {
		return
	}
	now := time.Now()
	if !r.expired {
		if end, _ := r.activeUntil(pod, now); now.Before(end) {
			pc.syncs.Revisit(r.key(), end.Sub(now))
			return
		}
		r.expired = true
		pc.cfg.EventRecorder.Event(pod, corev1.EventTypeNormal, reasonDeadlineExceeded, messageDeadlineExceeded)
	}
	if r.observed == absent && (r.ran || r.begun || pod.Status.Phase == corev1.PodRunning) && r.requested == requestedNone {
		r.observed = held // it may have been overlooked: have it ended all the same
	}
	if r.observed == absent && (!r.cancelled || r.requested != requestedNone) || r.stopped() {
		r.desire(deadlineExceeded(killed(pod, cmp.Or(r.providerStatus, r.desiredStatus), now)))
		pc.statuses.Add(r.key())
	}
}

// activeUntil returns when the pod's activeDeadlineSeconds, and the leeway, are over; false
// if it has none. r.mu is held.
func (r *podRecord) activeUntil(pod *corev1.Pod, now time.Time) (time.Time, bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}, false
	}
	started := r.activeSince
	if at := pod.Status.StartTime; at != nil {
		started = at.Time
	} else if started.IsZero() {
		started, r.activeSince = now, now
	}
	return started.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds)*time.Second + deadlineLeeway), true
}

// startDeadline has the start time of a pod with a deadline in the API while CreatePod is called,
// which may hang: then the deadline counts across restarts, too. It is not there long before: a process
// that finds it takes the pod for one that may have been created (see createdBefore).
func (pc *Controller) startDeadline(r *podRecord, pod *corev1.Pod) {
	if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.desiredStatus != nil || r.activeSince.IsZero() {
		return
	}
	status := pod.Status.DeepCopy()
	status.Phase, status.StartTime = corev1.PodPending, &metav1.Time{Time: r.activeSince}
	r.desire(status)
	pc.statuses.Add(r.key())
}

// deadlineExceeded is the final status of a pod that was ended because of its deadline.
func deadlineExceeded(ended *corev1.PodStatus) *corev1.PodStatus {
	status := ended.DeepCopy()
	status.Phase = corev1.PodFailed
	status.Reason, status.Message = reasonDeadlineExceeded, messageDeadlineExceeded
	return status
}
