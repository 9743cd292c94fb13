package node

// RememberedPods is the number of pods of which the controller knows something: those
// of the node in the API, and those that the provider holds still.
func (pc *PodController) RememberedPods() int { return pc.lifecycle.Pods() }

// SyncPodsFromKubernetesQueueLen is the number of pods for which a decision or
// a provider call waits, is delayed until a retry, or is in progress. Pods that
// are only looked at again after a while, to see how they are, do not count.
func (pc *PodController) SyncPodsFromKubernetesQueueLen() int { return pc.lifecycle.Syncs().Len() }

// SyncPodsFromKubernetesQueueUnprocessedLen is the number of those that wait or
// are delayed.
func (pc *PodController) SyncPodsFromKubernetesQueueUnprocessedLen() int {
	return pc.lifecycle.Syncs().UnprocessedLen()
}

// SyncPodsFromKubernetesQueueItemsBeingProcessedLen is the number of those that
// are in progress.
func (pc *PodController) SyncPodsFromKubernetesQueueItemsBeingProcessedLen() int {
	return pc.lifecycle.Syncs().ItemsBeingProcessedLen()
}

// DeletePodsFromKubernetesQueueLen is the number of pods whose removal from the
// API waits, is delayed until a retry, or is in progress.
func (pc *PodController) DeletePodsFromKubernetesQueueLen() int { return pc.lifecycle.Removals().Len() }

// DeletePodsFromKubernetesQueueUnprocessedLen is the number of those that wait
// or are delayed.
func (pc *PodController) DeletePodsFromKubernetesQueueUnprocessedLen() int {
	return pc.lifecycle.Removals().UnprocessedLen()
}

// DeletePodsFromKubernetesQueueItemsBeingProcessedLen is the number of those
// that are in progress.
func (pc *PodController) DeletePodsFromKubernetesQueueItemsBeingProcessedLen() int {
	return pc.lifecycle.Removals().ItemsBeingProcessedLen()
}

// SyncPodStatusFromProviderQueueLen is the number of pods whose status patch
// waits, is delayed until a retry, or is in progress.
func (pc *PodController) SyncPodStatusFromProviderQueueLen() int {
	return pc.lifecycle.Statuses().Len()
}

// SyncPodStatusFromProviderQueueUnprocessedLen is the number of those that wait
// or are delayed.
func (pc *PodController) SyncPodStatusFromProviderQueueUnprocessedLen() int {
	return pc.lifecycle.Statuses().UnprocessedLen()
}

// SyncPodStatusFromProviderQueueItemsBeingProcessedLen is the number of those
// that are in progress.
func (pc *PodController) SyncPodStatusFromProviderQueueItemsBeingProcessedLen() int {
	return pc.lifecycle.Statuses().ItemsBeingProcessedLen()
}
