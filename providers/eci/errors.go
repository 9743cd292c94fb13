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
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// throttledDelay is the delay before a retry of a call that was throttled.
	throttledDelay = 10 * time.Second
	// exhaustedDelay is the delay before a retry of a call that failed because of a
	// quota, the stock, the balance or a missing right: somebody has to change that.
	exhaustedDelay = time.Minute
)

// callError is an error response of the API.
type callError struct {
	action, code, message, requestID string
	status                           int
}

// Error implements error.
func (e callError) Error() string {
	return fmt.Sprintf("ECI refuses %s: %s: %s (request %s)", e.action, e.code, e.message, e.requestID)
}

// classify returns the error of a call with its class, and without what may be secret:
// the SDK's errors contain the URL with all parameters, or the string that was signed,
// or a part of the response.
func (c *client) classify(ctx context.Context, request requests.AcsRequest, err error) error {
	if err == nil {
		return nil
	}
	action := request.GetActionName()
	server, answered := errors.AsType[*sdkerrors.ServerError](err)
	if !answered {
		return noResponseError(ctx, action, err)
	}
	e := callError{
		action: action, code: server.ErrorCode(), requestID: server.RequestId(), status: server.HttpStatus(),
		message: c.withoutSecrets(server.Message(), request),
	}
	wait := retryAfter(server.RespHeaders)
	if e.code == "" { // not from the API but from something before it, and so not about the pod
		e.code, e.message = "HTTP "+strconv.Itoa(server.HttpStatus()), http.StatusText(server.HttpStatus())
		if wait > 0 || e.throttled() {
			return errdefs.AsRetryAfter(e, max(wait, throttledDelay))
		}
		return errdefs.AsUnavailable(e)
	}
	return withClass(e, wait)
}

// noResponseError returns the error of a call without a response.
func noResponseError(ctx context.Context, action string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return errdefs.AsUnavailable(fmt.Errorf("cannot reach ECI for %s: %w", action, failed.Err))
	}
	if client, ok := errors.AsType[*sdkerrors.ClientError](err); ok {
		return errdefs.AsUnavailable(fmt.Errorf("the SDK of ECI failed to call %s: %s", action, client.ErrorCode()))
	}
	if ctx.Err() != nil {
		return errdefs.AsUnavailable(fmt.Errorf("no response of ECI to %s: %w", action, ctx.Err()))
	}
	return errdefs.AsUnavailable(fmt.Errorf("the SDK of ECI failed to call %s (%T)", action, err))
}

// withClass returns an error with the class for its code. A code is a family, and may
// have more after a dot: Throttling.User.
func withClass(e callError, wait time.Duration) error {
	family, _, _ := strings.Cut(e.code, ".")
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(e.code, part) {
				return true
			}
		}
		return false
	}
	switch {
	case e.throttled():
		return errdefs.AsRetryAfter(e, max(wait, throttledDelay))
	case has("Quota", "NoStock", "NotOnSale", "SoldOut", "Balance", "InDebt", "Arrear", "NotEnough", "Insufficient"),
		slices.Contains(accountCodes, family):
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(e), max(wait, exhaustedDelay))
	case has("Forbidden", "NoPermission", "AccessKey", "Signature", "UnauthorizedOperation", "SecurityToken"):
		return errdefs.AsRetryAfter(e, max(wait, exhaustedDelay))
	case has("Idempotent"):
		// The same token was used with other parameters: the group exists.
		return errdefs.AsConflict(e)
	case has("IncorrectStatus", "InvalidStatus", "OperationConflict"):
		return errdefs.AsConflict(e)
	case has("NotFound", "NotExist") && e.action == actionLog && strings.HasPrefix(family, "InvalidParam"):
		return errdefs.AsNotFound(e) // its parameters refer to nothing but a group and a container
	case has("NotFound", "NotExist") && (e.action == actionCreate || e.action == actionList || !has("Container")):
		// It is not the group or container that does not exist: otherwise the pod would
		// count as gone while it runs.
		if e.action == actionCreate && !has("Region", "Action", "Api", "Product") {
			return errdefs.AsPermanent(e) // something that the new group refers to
		}
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(e), max(wait, exhaustedDelay))
	case has("NotFound", "NotExist") && !strings.HasPrefix(family, "InvalidParam"): // something that the call refers to
		return errdefs.AsNotFound(e)
	case e.status >= http.StatusInternalServerError, family == "InternalError", family == "ServiceUnavailable", has("Timeout"):
		return errdefs.AsUnavailable(e)
	case has("TimeStamp"): // the local clock is wrong
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(e), max(wait, exhaustedDelay))
	case e.action != actionList && e.action != actionDelete &&
		slices.ContainsFunc(podCodes, func(prefix string) bool { return strings.HasPrefix(family, prefix) }):
		return errdefs.AsPermanent(e)
	case e.status >= http.StatusBadRequest:
		// An unknown code does not mean that the pod is the reason.
		return errdefs.AsRetryAfter(e, max(wait, exhaustedDelay))
	}
	return e
}

// The actions that are not about one existing group; the deletion, which has to succeed at
// some time, since groups that are left over cost money; and the one for logs.
const (
	actionCreate = "CreateContainerGroup"
	actionList   = "DescribeContainerGroups"
	actionDelete = "DeleteContainerGroup"
	actionLog    = "DescribeContainerLog"
)

// accountCodes are the families of codes that look like podCodes, but are about the
// account, whose state others change.
var accountCodes = []string{"InvalidAccountStatus", "InvalidPaymentMethod", "InvalidUser", "InvalidOperation"}

// podCodes are the families of codes, by their first words, for requests that are
// refused however often they are sent.
var podCodes = []string{"Invalid", "Missing", "Malformed", "Illegal", "Unsupported", "NotSupport", "Duplicate"}

// isThrottled reports whether err means that there were too many calls.
func isThrottled(err error) bool {
	e, ok := errors.AsType[callError](err)
	return ok && e.throttled()
}

func (e callError) throttled() bool {
	return strings.Contains(e.code, "Throttling") || e.status == http.StatusTooManyRequests
}

// retryAfter returns the value of the Retry-After header in seconds.
func retryAfter(headers http.Header) time.Duration {
	seconds, err := strconv.Atoi(headers.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// minSecretLength is the minimum length of values that are removed from messages: "1"
// would be in all of them.
const minSecretLength = 4

// withoutSecrets returns a message of the API without the values of parameters that may
// be secret, and without the string to sign, which contains all of them.
func (c *client) withoutSecrets(message string, request requests.AcsRequest) string {
	message, _, _ = strings.Cut(message, "server string to sign")
	hide := func(value string) {
		if len(value) >= minSecretLength {
			message = strings.ReplaceAll(message, value, hidden)
		}
	}
	hide(c.secretKey.Reveal())
	hide(c.accessKey.Reveal())
	for _, params := range []map[string]string{request.GetQueryParams(), request.GetFormParams()} {
		for name, value := range params {
			if isSecret(name) {
				hide(value)
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
