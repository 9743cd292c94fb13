package node

import (
	corev1 "k8s.io/api/core/v1"
)

// compare takes the statuses of a list from a provider that notifies, for a
// notification may get lost. A list may also be behind, or say less: it counts if
// two in a row contradict what was notified, and nothing was in between. What two do
// not show is asked for. It returns true if all is as it was notified.
func (pc *PodController) compare(found []*corev1.Pod, asked uint64) (agrees bool) {
	agrees = true
	shown := make(map[*podRecord]struct{}, len(found))
	for _, pod := range found {
		key := keyOf(pod)
		r := pc.records.get(key)
		if r == nil {
			continue
		}
		maybe, same := pc.compareOne(key, r, pod, asked)
		if maybe {
			shown[r] = struct{}{}
		}
		agrees = agrees && same
	}
	pc.listsPods = pc.listsPods || len(found) > 0
	if !pc.listsPods {
		return true // a provider that cannot tell lists nothing
	}
	pc.records.each(func(key string, r *podRecord) {
		if _, ok := shown[r]; !ok && pc.miss(key, r, asked) {
			agrees = false
		}
	})
	return agrees
}

// compareOne tells whether listed may be the record's pod, and whether it does not
// contradict what was notified. Under the UIDs of its own
// that a list shows a pod may have been notified with ours: only one that goes by UIDs
// shows another pod for sure.
func (pc *PodController) compareOne(key string, r *podRecord, listed *corev1.Pod, asked uint64) (maybe, agrees bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod == nil {
		return true, true
	}
	same := pc.isOf(r, listed)
	if !same && pc.backend.byUID != nil {
		return false, true
	}
	r.unlisted = 0
	pc.reappears(key, r, listed, asked)
	if !same || r.theirs || r.provider != held || r.heard > asked || listed.Status.Phase == "" {
		return true, true
	}
	switch since := r.heard; {
	case !contradicts(r.said, &listed.Status):
		r.differed = nil
		return true, true
	case r.differed == nil || *r.differed != since:
		r.differed = &since
	default:
		r.differed = nil
		pc.listen(key, r, &listed.Status, asked)
	}
	return true, false
}

// miss takes note that a list does not show the record's pod, and tells whether it
// should. The provider may have lost it, and not said so: it is asked for the pod itself.
func (pc *PodController) miss(key string, r *podRecord, asked uint64) (missing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing > 0 && r.provider == absent && r.ran && !r.theirs && r.asked == requestNone && !r.givenUp() {
		return true // which is known already
	}
	if r.theirs || r.provider != held || r.stopped() || r.heard > asked {
		return false
	}
	if r.unlisted++; r.unlisted == 2 {
		r.unlisted = 0
		r.provider = unknown
		pc.syncs.Add(key)
	}
	return true
}

// contradicts tells whether one of two statuses of a pod is out of date: by the
// phase, by whether it is ready, or by what its containers do.
func contradicts(said, listed *corev1.PodStatus) bool {
	if said == nil || said.Phase != listed.Phase {
		return true
	}
	if a, b := readiness(said), readiness(listed); a != b && a != "" && b != "" {
		return true
	}
	for i := range listed.ContainerStatuses {
		is := &listed.ContainerStatuses[i]
		for j := range said.ContainerStatuses {
			was := &said.ContainerStatuses[j]
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
