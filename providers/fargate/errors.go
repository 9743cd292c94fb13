package fargate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The codes of what ECS has no code of its own for.
const (
	codeCapacity = "capacity"
	codeMissing  = "missing"
)

var codes = podgroup.Codes{
	Throttled: []string{"Throttling*", "RequestLimitExceeded", "TooManyRequestsException"},
	Exhausted: []string{codeCapacity, "LimitExceededException", "BlockedException"},
	Denied:    []string{"AccessDenied*", "UnrecognizedClientException", "ExpiredToken*", "InvalidSignatureException", "MissingAuthenticationToken*", "UnauthorizedOperation"},
	Busy:      []string{"ConflictException", "UpdateInProgressException", "ResourceExistsException"},
	Missing:   []string{codeMissing, "ClusterNotFoundException", "ResourceNotFoundException"},
	Away:      []string{"ServerException", "ServiceUnavailable*", "InternalFailure", "InternalServiceError", "InvalidRequestException"},
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
	case containsAny(text, "Capacity is unavailable", "reached the limit", "above your limit", "Error retrieving", "Unable to assume", "unable to assume"): // a person cures it, or time
		code = codeCapacity
	case containsAny(text, "Unable to describe task definition", "TaskDefinition is inactive", "TaskDefinition not found", "referenced task was not found"):
		code = codeMissing
	case action == podgroup.ActionCreate && code == "ClusterNotFoundException": // the next list creates it
		code = codeCapacity
	}
	return codes.Classify(action, code, status, 0, fmt.Errorf("AWS refuses to %s: %s: %s", action, answer.ErrorCode(), text))
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
