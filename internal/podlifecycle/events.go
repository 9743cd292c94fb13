package podlifecycle

// The reasons of the events that the Controller records on pods.
const (
	// ReasonProviderCreateSuccess: the provider took the pod on.
	ReasonProviderCreateSuccess = "ProviderCreateSuccess"
	// ReasonProviderCreateFailed: CreatePod failed; it will be tried again.
	ReasonProviderCreateFailed = "ProviderCreateFailed"
	// ReasonProviderUpdateSuccess: the provider took over a change of the pod.
	ReasonProviderUpdateSuccess = "ProviderUpdateSuccess"
	// ReasonProviderUpdateFailed: UpdatePod failed; it will be tried again.
	ReasonProviderUpdateFailed = "ProviderUpdateFailed"
	// ReasonProviderDeleteSuccess: the provider accepted the end of the pod.
	ReasonProviderDeleteSuccess = "ProviderDeleteSuccess"
	// ReasonProviderDeleteFailed: DeletePod failed; it will be tried again.
	ReasonProviderDeleteFailed = "ProviderDeleteFailed"
	// ReasonProviderLost: the provider no longer knows a pod that it ran.
	ReasonProviderLost = "ProviderLost"
	// ReasonProviderMissing: the provider does not know the pod, as it does not know
	// many others of the node: none of them is taken for lost.
	ReasonProviderMissing = "ProviderMissing"
	// ReasonProviderInspectFailed: the provider cannot say whether it holds the
	// pod; until it can, nothing is done about the pod.
	ReasonProviderInspectFailed = "ProviderInspectFailed"
	// ReasonNodeUnclaimed: nothing is begun for the node, since its lease cannot be
	// renewed and another process may have taken the node.
	ReasonNodeUnclaimed = "NodeUnclaimed"
	// ReasonStatusRejected: the API does not accept the status that the
	// provider reports.
	ReasonStatusRejected = "StatusRejected"
)

// The reasons of the events that the Controller records on the node.
const (
	// ReasonPodsMissing: the provider does not know many of the node's pods, which are
	// not taken for lost.
	ReasonPodsMissing = "PodsMissing"
	// ReasonPodsFound: it knows most of them again, or they were deleted.
	ReasonPodsFound = "PodsFound"
)

// The values of status.reason that the Controller writes.
const (
	// StatusReasonProviderFailed: the provider could not create the pod.
	StatusReasonProviderFailed = "ProviderFailed"
	// StatusReasonNotFound: the provider no longer knows a pod that it ran.
	StatusReasonNotFound = "NotFound"
)
