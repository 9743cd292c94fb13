package node

// RememberedPods is the number of pod names of which the controller knows
// something: those of the node's pods in the API, those that the provider holds
// still, and for a minute those that have gone.
func (pc *PodController) RememberedPods() int { return pc.records.len() }

// SyncPodsFromKubernetesQueueLen is the number of pods for which a decision or
// a provider call waits, is delayed until a retry, or is in progress. Pods that
// are only looked at again after a while, to see how they are, do not count.
func (pc *PodController) SyncPodsFromKubernetesQueueLen() int { return pc.syncs.Len() }

// SyncPodsFromKubernetesQueueUnprocessedLen is the number of those that wait or
// are delayed.
func (pc *PodController) SyncPodsFromKubernetesQueueUnprocessedLen() int {
	return pc.syncs.UnprocessedLen()
}

// SyncPodsFromKubernetesQueueItemsBeingProcessedLen is the number of those that
// are in progress.
func (pc *PodController) SyncPodsFromKubernetesQueueItemsBeingProcessedLen() int {
	return pc.syncs.ItemsBeingProcessedLen()
}

// DeletePodsFromKubernetesQueueLen is the number of pods whose removal from the
// API waits, is delayed until a retry, or is in progress.
func (pc *PodController) DeletePodsFromKubernetesQueueLen() int { return pc.removals.Len() }

// DeletePodsFromKubernetesQueueUnprocessedLen is the number of those that wait
// or are delayed.
func (pc *PodController) DeletePodsFromKubernetesQueueUnprocessedLen() int {
	return pc.removals.UnprocessedLen()
}

// DeletePodsFromKubernetesQueueItemsBeingProcessedLen is the number of those
// that are in progress.
func (pc *PodController) DeletePodsFromKubernetesQueueItemsBeingProcessedLen() int {
	return pc.removals.ItemsBeingProcessedLen()
}

// SyncPodStatusFromProviderQueueLen is the number of pods whose status patch
// waits, is delayed until a retry, or is in progress.
func (pc *PodController) SyncPodStatusFromProviderQueueLen() int { return pc.statuses.Len() }

// SyncPodStatusFromProviderQueueUnprocessedLen is the number of those that wait
// or are delayed.
func (pc *PodController) SyncPodStatusFromProviderQueueUnprocessedLen() int {
	return pc.statuses.UnprocessedLen()
}

// SyncPodStatusFromProviderQueueItemsBeingProcessedLen is the number of those
// that are in progress.
func (pc *PodController) SyncPodStatusFromProviderQueueItemsBeingProcessedLen() int {
	return pc.statuses.ItemsBeingProcessedLen()
}
