package vkubelet

import "github.com/virtual-kubelet/virtual-kubelet/node"

// The reasons of the events that are recorded on pods. Package node says what
// each of them means.
const (
	ReasonFailedToReadMandatoryConfigMap   = node.ReasonFailedToReadMandatoryConfigMap
	ReasonFailedToReadMandatorySecret      = node.ReasonFailedToReadMandatorySecret
	ReasonFailedToReadOptionalConfigMap    = node.ReasonFailedToReadOptionalConfigMap
	ReasonFailedToReadOptionalSecret       = node.ReasonFailedToReadOptionalSecret
	ReasonFailedToReadServices             = node.ReasonFailedToReadServices
	ReasonInvalidEnvironmentVariableNames  = node.ReasonInvalidEnvironmentVariableNames
	ReasonInvalidEnvironmentVariableSource = node.ReasonInvalidEnvironmentVariableSource
	ReasonMandatoryConfigMapKeyNotFound    = node.ReasonMandatoryConfigMapKeyNotFound
	ReasonMandatoryConfigMapNotFound       = node.ReasonMandatoryConfigMapNotFound
	ReasonMandatorySecretKeyNotFound       = node.ReasonMandatorySecretKeyNotFound
	ReasonMandatorySecretNotFound          = node.ReasonMandatorySecretNotFound
	ReasonNodeUnclaimed                    = node.ReasonNodeUnclaimed
	ReasonOptionalConfigMapKeyNotFound     = node.ReasonOptionalConfigMapKeyNotFound
	ReasonOptionalConfigMapNotFound        = node.ReasonOptionalConfigMapNotFound
	ReasonOptionalSecretKeyNotFound        = node.ReasonOptionalSecretKeyNotFound
	ReasonOptionalSecretNotFound           = node.ReasonOptionalSecretNotFound
	ReasonPodsFound                        = node.ReasonPodsFound
	ReasonPodsMissing                      = node.ReasonPodsMissing
	ReasonProviderCreateFailed             = node.ReasonProviderCreateFailed
	ReasonProviderCreateSuccess            = node.ReasonProviderCreateSuccess
	ReasonProviderDeleteFailed             = node.ReasonProviderDeleteFailed
	ReasonProviderDeleteSuccess            = node.ReasonProviderDeleteSuccess
	ReasonProviderInspectFailed            = node.ReasonProviderInspectFailed
	ReasonProviderLost                     = node.ReasonProviderLost
	ReasonProviderMissing                  = node.ReasonProviderMissing
	ReasonProviderUpdateFailed             = node.ReasonProviderUpdateFailed
	ReasonProviderUpdateSuccess            = node.ReasonProviderUpdateSuccess
	ReasonStatusRejected                   = node.ReasonStatusRejected
)
