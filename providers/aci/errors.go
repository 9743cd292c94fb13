package aci

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// actionView is the call for the state of a group, which may be missing.
const actionView podgroup.Action = "view"

// codes are those of Azure Resource Manager and of Container Instances. An image that cannot
// be pulled is tried again, as a kubelet does: that is cured in the registry.
var codes = podgroup.Codes{
	Throttled: []string{"TooManyRequests", "*Throttled*", "*RateLimit*"},
	Exhausted: []string{"*Quota*", "ServiceUnavailable", "*NotAvailable*", "*Capacity*", "OperationNotAllowed"},
	Denied: []string{
		"Authorization*", "*AuthorizationFailed", "Authentication*", "*AuthenticationToken*", "Unauthorized", "Forbidden", "*NotRegistered", "MissingSubscriptionRegistration",
		"ReadOnlyDisabledSubscription", "RequestDisallowedByPolicy", "ScopeLocked", "ResourceGroupNotFound", "SubscriptionNotFound", "ResourceGroupBeingDeleted",
		"InvalidSubscriptionId", "InvalidApiVersionParameter", "InvalidResourceType", "InvalidResourceNamespace", "NoRegisteredProviderFound", // of the configuration, not of pods
		"InaccessibleImage", "RegistryErrorResponse",
	},
	Busy:    []string{"ContainerGroupTransitioning", "Conflict", "AnotherOperationInProgress", "OperationPreempted", "ContainerGroupDeploymentNotReady"},
	Missing: []string{"ResourceNotFound", "NotFound", "ContainerGroupNotFound"},
	Away:    []string{"Internal*", "ServerTimeout", "GatewayTimeout", "BadGateway"},
	Refused: []string{"Invalid*", "BadRequest", "*NotSupported*", "*NotSpecified", "*Duplicate*", "*OutOfRange", "*Exceed*", "*LessThan*", "*GreaterThan*", "RequestEntityTooLarge", "LinkedInvalidPropertyId"},
}

// maxErrorText is how much of Azure's text an error has.
const maxErrorText = 500

// classify returns err with its class. The text is that of Azure's error, which repeats names,
// and no values of variables or files.
func classify(action podgroup.Action, err error) error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok && failed.RawResponse != nil {
		err = fmt.Errorf("cannot ask Azure to %s: its identity service refuses the credentials: %s", action, failed.RawResponse.Status)
		return codes.Classify(action, "AuthenticationFailed", failed.RawResponse.StatusCode, 0, err)
	}
	refused, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || refused.RawResponse == nil { // nobody has answered
		return codes.Classify(action, "", 0, 0, fmt.Errorf("cannot ask Azure to %s: %w", action, err))
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	detail := http.StatusText(refused.StatusCode)
	if text, err := runtime.Payload(refused.RawResponse); err == nil && json.Unmarshal(text, &body) == nil && body.Error.Message != "" {
		detail = body.Error.Message
	}
	err = fmt.Errorf("cannot %s: Azure answers %d %s: %s", action, refused.StatusCode, refused.ErrorCode, detail[:min(len(detail), maxErrorText)])
	return codes.Classify(action, refused.ErrorCode, refused.StatusCode, podgroup.RetryAfter(refused.RawResponse.Header), err)
}
