package eci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// codes are the families of the API's error codes. A code may have more after a dot:
// Throttling.User.
var codes = podgroup.Codes{
	Throttled: []string{"*Throttling*"},
	Exhausted: []string{
		"*Quota*", "*NoStock*", "*NotOnSale*", "*SoldOut*", "*Balance*", "*InDebt*", "*Arrear*", "*NotEnough*", "*Insufficient*",
		// Of the account, whose state others change.
		"InvalidAccountStatus*", "InvalidPaymentMethod*", "InvalidUser*", "InvalidOperation*",
		// Of the configuration: the local clock, or a region or endpoint that lacks the
		// product. They say nothing of a group.
		"*TimeStamp*", "InvalidRegion*", "InvalidAction*", "InvalidApi*", "InvalidProduct*",
	},
	Denied: []string{"*Forbidden*", "*NoPermission*", "*AccessKey*", "*Signature*", "*UnauthorizedOperation*", "*SecurityToken*"},
	// Idempotent: the same token was used with other parameters, so that the group exists.
	Busy:    []string{"*Idempotent*", "*IncorrectStatus*", "*InvalidStatus*", "*OperationConflict*"},
	Missing: []string{"Container*NotFound*", "Container*NotExist*", "InvalidContainer*NotFound*", "InvalidContainer*NotExist*"},
	Away:    []string{"InternalError*", "ServiceUnavailable*", "*Timeout*"},
	Refused: []string{"Invalid*", "Missing*", "Malformed*", "Illegal*", "Unsupported*", "*NotSupport*", "Duplicate*", "*NotInSameZone*", "DiskNumber*", "*NotMatchCpuArch*",
		"LocalDiskAmountNotMatch*", "FeatureBasedConstraintConflict*", "*NotFound*", "*NotExist*"},
}

// codesOf returns the codes for an action.
func codesOf(action podgroup.Action) podgroup.Codes {
	of := codes
	if action == podgroup.ActionLog { // its parameters refer to nothing but a group and a container
		of.Missing = append([]string{"InvalidParam*NotFound*", "InvalidParam*NotExist*"}, of.Missing...)
	}
	return of
}

// isOfGroup reports whether an error that something does not exist is about a container group, and not
// about a container of one. The documentation of DescribeContainerLog names no codes: of one about a
// parameter the message says which. If the container has run, and so is in the group if that exists,
// there is no other.
func isOfGroup(err error, containerHasRun bool) bool {
	e, ok := errors.AsType[callError](err)
	switch {
	case !ok, !errdefs.IsNotFound(err):
		return false
	case strings.HasPrefix(e.code, "InvalidParam"):
		return containerHasRun || strings.Contains(e.message, "ContainerGroupId") && !strings.Contains(e.message, "ContainerName")
	}
	return strings.Contains(e.code, "ContainerGroup")
}

// callError is an error response of the API.
type callError struct {
	name, code, message, requestID string
}

// noCode is how the code begins of an answer without one: it has the HTTP status instead.
const noCode = "HTTP "

// Error implements error.
func (e callError) Error() string {
	return fmt.Sprintf("ECI refuses %s: %s: %s (request %s)", e.name, e.code, e.message, e.requestID)
}

// classify returns the error of a call with its class, and without what may be secret:
// the SDK's errors contain the URL with all parameters, or the string that was signed,
// or a part of the response.
func (c *client) classify(ctx context.Context, action podgroup.Action, request *requests.CommonRequest, used key, err error) error {
	if err == nil {
		return nil
	}
	server, answered := errors.AsType[*sdkerrors.ServerError](err)
	if !answered {
		return noResponseError(ctx, request.ApiName, err)
	}
	code := server.ErrorCode()
	e := callError{name: request.ApiName, code: code, requestID: server.RequestId(), message: withoutSecrets(server.Message(), request, used)}
	if code == "" { // not from the API but from something before it
		e.code, e.message = noCode+strconv.Itoa(server.HttpStatus()), http.StatusText(server.HttpStatus())
	}
	return codesOf(action).Classify(action, code, server.HttpStatus(), podgroup.RetryAfter(server.RespHeaders), e)
}

// noResponseError returns the error of a call without a response.
func noResponseError(ctx context.Context, name string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return errdefs.AsUnavailable(fmt.Errorf("cannot reach ECI for %s: %w", name, failed.Err))
	}
	if client, ok := errors.AsType[*sdkerrors.ClientError](err); ok {
		return errdefs.AsUnavailable(fmt.Errorf("the SDK of ECI failed to call %s: %s", name, client.ErrorCode()))
	}
	if ctx.Err() != nil {
		return errdefs.AsUnavailable(fmt.Errorf("no response of ECI to %s: %w", name, ctx.Err()))
	}
	return errdefs.AsUnavailable(fmt.Errorf("the SDK of ECI failed to call %s (%T)", name, err))
}

// minSecretLength is the minimum length of values that are removed from messages: "1"
// would be in all of them.
const minSecretLength = 4

// withoutSecrets returns a message of the API without the values of parameters that may
// be secret, and without the string to sign, which contains all of them.
func withoutSecrets(message string, request *requests.CommonRequest, used key) string {
	message, _, _ = strings.Cut(message, "server string to sign")
	secrets := []string{used.secret.Reveal(), used.id.Reveal(), used.token.Reveal()}
	for _, params := range []map[string]string{request.QueryParams, request.FormParams} {
		for name, value := range params {
			if isSecret(name) {
				secrets = append(secrets, value)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	for _, secret := range secrets {
		for _, quoted := range []string{secret, url.QueryEscape(secret), jsonText(secret)} {
			if text := strings.Trim(quoted, `"`); len(text) >= minSecretLength {
				message = strings.ReplaceAll(message, text, hidden)
			}
		}
	}
	return strings.TrimSpace(message)
}

// isSecret reports whether the value of a parameter may be a secret.
func isSecret(name string) bool {
	return strings.HasSuffix(name, ".Password") || strings.HasSuffix(name, ".Content") ||
		strings.Contains(name, ".EnvironmentVar.") && strings.HasSuffix(name, ".Value") || name == "Signature" ||
		strings.Contains(name, ".FlexVolume.") || strings.Contains(name, "HttpHeader.") && strings.HasSuffix(name, ".Value")
}
