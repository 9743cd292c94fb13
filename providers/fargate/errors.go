package fargate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The codes of what ECS has no code of its own for.
const (
	codeLater   = "later" // a person cures it, or time
	codeMissing = "missing"
)

var codes = podgroup.Codes{
	Throttled: []string{"Throttling*", "RequestLimitExceeded", "TooManyRequestsException"},
	Exhausted: []string{codeLater, "LimitExceededException", "BlockedException"},
	Denied:    []string{"AccessDenied*", "UnrecognizedClientException", "ExpiredToken*", "InvalidSignatureException", "MissingAuthenticationToken*", "UnauthorizedOperation"},
	Busy:      []string{"ConflictException", "UpdateInProgressException", "ResourceExistsException"},
	Missing:   []string{codeMissing, "ClusterNotFoundException", "ResourceNotFoundException"},
	Away:      []string{"ServerException", "ServiceUnavailable*", "InternalFailure", "InternalServiceError", "InvalidRequestException", "TargetNotConnectedException"},
	Refused:   []string{"InvalidParameterException", "ClientException", "UnsupportedFeatureException", "Platform*"},
}

// classify returns err, of a call of an action, with its class. The text has no secrets: ECS
// does not repeat values.
func classify(action podgroup.Action, err error) error {
	if err == nil {
		return nil
	}
	answer, ok := errors.AsType[smithy.APIError](err)
	if !ok { // nobody has answered
		return codes.Classify(action, "", 0, 0, fmt.Errorf("cannot ask AWS to %s: %w", action, err))
	}
	status := 0
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = response.HTTPStatusCode()
	}
	code, text := answer.ErrorCode(), answer.ErrorMessage()
	switch {
	case containsAny(text, "ErrorCode: Throttling", "RequestLimitExceeded"): // what it has asked another service, as InvalidParameterException
		code = "Throttling"
	case containsAny(text, "Capacity is unavailable", "reached the limit", "above your limit", "Error retrieving", "Unable to assume", "unable to assume", "ole is not valid", "Too many concurrent attempts"):
		code = codeLater
	case containsAny(text, "Unable to describe task definition", "TaskDefinition is inactive", "TaskDefinition not found", "referenced task was not found"):
		code = codeMissing
	case action == podgroup.ActionCreate && code == "ClusterNotFoundException": // the next list creates it
		code = codeLater
	}
	refused := fmt.Errorf("AWS refuses to %s: %s: %s", action, answer.ErrorCode(), text)
	out := codes.Classify(action, code, status, 0, refused)
	if call, ok := errors.AsType[*smithy.OperationError](err); ok && call.OperationName == "RunTask" && errdefs.IsPermanent(out) {
		// What a pod says is in the definition, which was registered: the subnets, the security
		// groups, the platform version and the rest are the node's.
		return codes.Classify(action, codeLater, status, 0, refused)
	}
	return out
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
