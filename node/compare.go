package node

import (
	corev1 "k8s.io/api/core/v1"
)

// compare takes the statuses of a list from a provider that notifies, for a
// notification may get lost. A list may also be behind, or say less: it counts if
// two in a row contradict what was notified, and nothing was in between.
func (pc *PodController) compare(found []*corev1.Pod, asked uint64) {
	for _, pod := range found {
		key := keyOf(pod)
		if r := pc.records.get(key); r != nil && pod.Status.Phase != "" {
			pc.compareOne(key, r, pod, asked)
		}
	}
}

func (pc *PodController) compareOne(key string, r *podRecord, listed *corev1.Pod, asked uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod == nil || r.theirs || r.provider != held || r.heard > asked || !pc.identity.same(r.pod, listed) {
		return
	}
	switch since := r.heard; {
	case !contradicts(r.said, &listed.Status):
		r.differed = nil
	case r.differed == nil || *r.differed != since:
		r.differed = &since
	default:
		r.differed = nil
		pc.listen(key, r, &listed.Status, asked)
	}
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
