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
	// throttledFor is when to try again after too many calls.
	throttledFor = 10 * time.Second
	// exhaustedFor is when to try again what a quota, the stock, the balance or
	// a missing right does not allow: others have to change that.
	exhaustedFor = time.Minute
)

// callError is the answer of the API to a call that failed.
type callError struct {
	action, code, message, requestID string
	status                           int
}

// Error implements error.
func (e callError) Error() string {
	return fmt.Sprintf("ECI refuses %s: %s: %s (request %s)", e.action, e.code, e.message, e.requestID)
}

// classify gives the error of a call its class, and takes out of it what may be
// secret: the SDK's errors have the URL, with all parameters, or the string that
// was signed, or a part of an answer.
func (c *client) classify(ctx context.Context, request requests.AcsRequest, err error) error {
	if err == nil {
		return nil
	}
	action := request.GetActionName()
	server, answered := errors.AsType[*sdkerrors.ServerError](err)
	if !answered {
		return unanswered(ctx, action, err)
	}
	e := callError{
		action: action, code: server.ErrorCode(), requestID: server.RequestId(), status: server.HttpStatus(),
		message: c.withoutSecrets(server.Message(), request),
	}
	wait := retryAfter(server.RespHeaders)
	if e.code == "" { // what is not the API's, but of something before it, and says nothing of the pod
		e.code, e.message = "HTTP "+strconv.Itoa(server.HttpStatus()), http.StatusText(server.HttpStatus())
		if wait > 0 || e.throttled() {
			return errdefs.AsRetryAfter(e, max(wait, throttledFor))
		}
		return errdefs.AsUnavailable(e)
	}
	return withClass(e, wait)
}

// unanswered is the error of a call that has no answer.
func unanswered(ctx context.Context, action string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return errdefs.AsUnavailable(fmt.Errorf("cannot reach ECI for %s: %w", action, failed.Err))
	}
	if client, ok := errors.AsType[*sdkerrors.ClientError](err); ok {
		return errdefs.AsUnavailable(fmt.Errorf("the SDK of ECI cannot do %s: %s", action, client.ErrorCode()))
	}
	if ctx.Err() != nil {
		return errdefs.AsUnavailable(fmt.Errorf("no answer of ECI to %s: %w", action, ctx.Err()))
	}
	return errdefs.AsUnavailable(fmt.Errorf("the SDK of ECI cannot do %s (%T)", action, err))
}

// withClass decides by the code of an answer. Codes are a family, and more after
// a dot: Throttling.User.
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
		return errdefs.AsRetryAfter(e, max(wait, throttledFor))
	case has("Quota", "NoStock", "NotOnSale", "SoldOut", "Balance", "InDebt", "Arrear", "NotEnough", "Insufficient"),
		slices.Contains(aboutAccount, family):
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(e), max(wait, exhaustedFor))
	case has("Forbidden", "NoPermission", "AccessKey", "Signature", "UnauthorizedOperation", "SecurityToken"):
		return errdefs.AsRetryAfter(e, max(wait, exhaustedFor))
	case has("Idempotent"):
		// The same token with other parameters: the group is there.
		return errdefs.AsConflict(e)
	case has("IncorrectStatus", "InvalidStatus", "OperationConflict"):
		return errdefs.AsConflict(e)
	case has("NotFound", "NotExist") && (e.action == actionCreate || e.action == actionList || !has("Container")):
		// It is not the group that does not exist, or its container: then the pod
		// would be taken for gone, and what runs be forgotten.
		if e.action == actionCreate && !has("Region", "Action", "Api", "Product") {
			return errdefs.AsPermanent(e) // what a new group names
		}
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(e), max(wait, exhaustedFor))
	case has("NotFound", "NotExist") && !strings.HasPrefix(family, "InvalidParam"): // which is of something that the call names
		return errdefs.AsNotFound(e)
	case e.status >= http.StatusInternalServerError, family == "InternalError", family == "ServiceUnavailable", has("Timeout"):
		return errdefs.AsUnavailable(e)
	case has("TimeStamp"): // the clock of this machine is wrong
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(e), max(wait, exhaustedFor))
	case e.action != actionList && e.action != actionDelete &&
		slices.ContainsFunc(aboutPod, func(prefix string) bool { return strings.HasPrefix(family, prefix) }):
		return errdefs.AsPermanent(e)
	case e.status >= http.StatusBadRequest:
		// Of a code that nobody knows it is not said that the pod is to blame.
		return errdefs.AsRetryAfter(e, max(wait, exhaustedFor))
	}
	return e
}

// The actions that are not about one group that there is, and that which is to
// succeed at some time: what is left over costs money.
const (
	actionCreate = "CreateContainerGroup"
	actionList   = "DescribeContainerGroups"
	actionDelete = "DeleteContainerGroup"
)

// aboutAccount are the families that sound like aboutPod, but are of the account or
// of what a group is to have, whose state others change.
var aboutAccount = []string{"InvalidAccountStatus", "InvalidPaymentMethod", "InvalidUser", "InvalidOperation"}

// aboutPod are the families of codes, by their first words, that refuse what was
// asked for, however often it is asked.
var aboutPod = []string{"Invalid", "Missing", "Malformed", "Illegal", "Unsupported", "NotSupport", "Duplicate"}

// isThrottled tells whether err says that there were too many calls.
func isThrottled(err error) bool {
	e, ok := errors.AsType[callError](err)
	return ok && e.throttled()
}

func (e callError) throttled() bool {
	return strings.Contains(e.code, "Throttling") || e.status == http.StatusTooManyRequests
}

// retryAfter is what the answer's header of that name says, in seconds.
func retryAfter(headers http.Header) time.Duration {
	seconds, err := strconv.Atoi(headers.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// leastSecret is how long a parameter is at least that is looked for in messages:
// "1" would be in all of them.
const leastSecret = 4

// withoutSecrets is a message of the API without the values of parameters that
// may be secret, and without the string to sign, which has all of them.
func (c *client) withoutSecrets(message string, request requests.AcsRequest) string {
	message, _, _ = strings.Cut(message, "server string to sign")
	hide := func(value string) {
		if len(value) >= leastSecret {
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

// isSecret tells whether the value of a parameter may be a secret.
func isSecret(name string) bool {
	return strings.HasSuffix(name, ".Password") || strings.HasSuffix(name, ".Content") ||
		strings.Contains(name, ".EnvironmentVar.") && strings.HasSuffix(name, ".Value") || name == "Signature" ||
		strings.Contains(name, ".FlexVolume.") || strings.Contains(name, "HttpHeader.") && strings.HasSuffix(name, ".Value")
}
