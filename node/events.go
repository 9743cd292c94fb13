package node

import (
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podlifecycle"
)

// The reasons of the events that the PodController records on pods.
const (
	// ReasonProviderCreateSuccess: the provider took the pod on.
	ReasonProviderCreateSuccess = podlifecycle.ReasonProviderCreateSuccess
	// ReasonProviderCreateFailed: CreatePod failed; it will be tried again.
	ReasonProviderCreateFailed = podlifecycle.ReasonProviderCreateFailed
	// ReasonProviderUpdateSuccess: the provider took over a change of the pod.
	ReasonProviderUpdateSuccess = podlifecycle.ReasonProviderUpdateSuccess
	// ReasonProviderUpdateFailed: UpdatePod failed; it will be tried again.
	ReasonProviderUpdateFailed = podlifecycle.ReasonProviderUpdateFailed
	// ReasonProviderDeleteSuccess: the provider accepted the end of the pod.
	ReasonProviderDeleteSuccess = podlifecycle.ReasonProviderDeleteSuccess
	// ReasonProviderDeleteFailed: DeletePod failed; it will be tried again.
	ReasonProviderDeleteFailed = podlifecycle.ReasonProviderDeleteFailed
	// ReasonProviderLost: the provider no longer knows a pod that it ran.
	ReasonProviderLost = podlifecycle.ReasonProviderLost
	// ReasonProviderMissing: the provider does not know the pod, as it does not know
	// many others of the node: none of them is taken for lost.
	ReasonProviderMissing = podlifecycle.ReasonProviderMissing
	// ReasonProviderInspectFailed: the provider cannot say whether it holds the
	// pod; until it can, nothing is done about the pod.
	ReasonProviderInspectFailed = podlifecycle.ReasonProviderInspectFailed
	// ReasonNodeUnclaimed: nothing is begun for the node, since its lease cannot be
	// renewed and another process may have taken the node.
	ReasonNodeUnclaimed = podlifecycle.ReasonNodeUnclaimed
	// ReasonStatusRejected: the API does not accept the status that the
	// provider reports.
	ReasonStatusRejected = podlifecycle.ReasonStatusRejected
)

// The reasons of the events that the PodController records on the node.
const (
	// ReasonPodsMissing: the provider does not know many of the node's pods, which are
	// not taken for lost.
	ReasonPodsMissing = podlifecycle.ReasonPodsMissing
	// ReasonPodsFound: it knows most of them again, or they were deleted.
	ReasonPodsFound = podlifecycle.ReasonPodsFound
)

// The reasons of the events about a pod's environment. Mandatory references hold the
// pod back until they are there, and optional ones until it is known whether they are.
const (
	ReasonOptionalConfigMapNotFound       = podenv.ReasonOptionalConfigMapNotFound
	ReasonOptionalConfigMapKeyNotFound    = podenv.ReasonOptionalConfigMapKeyNotFound
	ReasonFailedToReadOptionalConfigMap   = podenv.ReasonFailedToReadOptionalConfigMap
	ReasonOptionalSecretNotFound          = podenv.ReasonOptionalSecretNotFound
	ReasonOptionalSecretKeyNotFound       = podenv.ReasonOptionalSecretKeyNotFound
	ReasonFailedToReadOptionalSecret      = podenv.ReasonFailedToReadOptionalSecret
	ReasonMandatoryConfigMapNotFound      = podenv.ReasonMandatoryConfigMapNotFound
	ReasonMandatoryConfigMapKeyNotFound   = podenv.ReasonMandatoryConfigMapKeyNotFound
	ReasonFailedToReadMandatoryConfigMap  = podenv.ReasonFailedToReadMandatoryConfigMap
	ReasonMandatorySecretNotFound         = podenv.ReasonMandatorySecretNotFound
	ReasonMandatorySecretKeyNotFound      = podenv.ReasonMandatorySecretKeyNotFound
	ReasonFailedToReadMandatorySecret     = podenv.ReasonFailedToReadMandatorySecret
	ReasonInvalidEnvironmentVariableNames = podenv.ReasonInvalidEnvironmentVariableNames

	ReasonInvalidEnvironmentVariableSource = podenv.ReasonInvalidEnvironmentVariableSource
	ReasonFailedToReadServices             = podenv.ReasonFailedToReadServices
)

// The values of status.reason that the Controller writes.
const (
	// StatusReasonProviderFailed: the provider could not create the pod.
	StatusReasonProviderFailed = podlifecycle.StatusReasonProviderFailed
	// StatusReasonNotFound: the provider no longer knows a pod that it ran.
	StatusReasonNotFound = podlifecycle.StatusReasonNotFound
)
