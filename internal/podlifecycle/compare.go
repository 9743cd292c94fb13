package podlifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// compare takes the statuses of a list from a provider that notifies, for a
// notification may get lost. A list may also be behind, or say less: it counts if
// two in a row contradict what was notified, and nothing was in between. What two do
// not show is asked for. It returns true if all is as it was notified.
func (pc *Controller) compare(found []*corev1.Pod, asked time.Time, since uint64) (agrees bool) {
	agrees = true
	shown := make(map[*podRecord]struct{}, len(found))
	for _, pod := range found {
		which := pc.backend.identify(pod)
		r := pc.records.get(which.id)
		if r == nil {
			continue
		}
		// Under a UID of its own a list may show a pod that was notified with ours: what is
		// shown in a pod's place counts as the pod.
		shown[r] = struct{}{}
		agrees = pc.compareOne(r, pod, which.is, asked, since) && agrees
	}
	pc.listsPods = pc.listsPods || len(found) > 0
	if !pc.listsPods {
		return true // a provider that cannot tell lists nothing
	}
	pc.records.each(func(r *podRecord) {
		if _, ok := shown[r]; !ok && pc.miss(r, since) {
			agrees = false
		}
	})
	return agrees
}

// compareOne reports whether what is listed, of a pod if it is that, or else in its
// place, does not contradict what was notified.
func (pc *Controller) compareOne(r *podRecord, listed *corev1.Pod, is bool, asked time.Time, since uint64) (agrees bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlisted = 0
	if !is {
		return true
	}
	pc.reappears(r, listed, asked, since)
	if r.orphan || r.observed != held || r.observation > since || listed.Status.Phase == "" {
		return true
	}
	switch last := r.observation; {
	case !contradicts(r.providerStatus, &listed.Status):
		r.differed = nil
		if r.requested != requestedNone && since >= r.endSince && r.mayHaveStopped() && allTerminated(&listed.Status) {
			r.observation = pc.observations.Add(1) // what was notified before the end was asked for is so still
			pc.syncs.Add(r.key())
		}
		return true
	case r.differed == nil || *r.differed != last:
		r.differed = &last
	default:
		r.differed = nil
		pc.observed(r, &listed.Status, since)
	}
	return false
}

// miss records that a list does not show the record's pod, and reports whether it
// should. The provider may have lost it without a notification: it is asked for the pod itself.
func (pc *Controller) miss(r *podRecord, since uint64) (missing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing > 0 && r.observed == absent && r.ran && !r.orphan && r.requested == requestedNone && !r.givenUp() {
		return true // which is known already
	}
	if r.orphan || r.observed != held || r.stopped() || r.observation > since {
		return false
	}
	if r.unlisted++; r.unlisted == 2 {
		r.unlisted = 0
		r.observed = unknown
		pc.syncs.Add(r.key())
	}
	return true
}

// contradicts reports whether one of two statuses of a pod is out of date: by the
// phase, by whether it is ready, or by what its containers do.
func contradicts(notified, listed *corev1.PodStatus) bool {
	if notified == nil || notified.Phase != listed.Phase {
		return true
	}
	if a, b := readiness(notified), readiness(listed); a != b && a != "" && b != "" {
		return true
	}
	for i := range listed.ContainerStatuses {
		is := &listed.ContainerStatuses[i]
		for j := range notified.ContainerStatuses {
			was := &notified.ContainerStatuses[j]
			if was.Name == is.Name && (was.RestartCount != is.RestartCount || was.Ready != is.Ready ||
				(was.State.Running == nil) != (is.State.Running == nil) || (was.State.Terminated == nil) != (is.State.Terminated == nil)) {
				return true
			}
		}
	}
	return false
}

func readiness(status *corev1.PodStatus) corev1.ConditionStatus {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PodReady {
			return status.Conditions[i].Status
		}
	}
	return ""
}
