package ec2

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// action is one of the Query API.
type action string

// The actions that are called.
const (
	runInstances      action = "RunInstances"
	describeInstances action = "DescribeInstances"
	describeSpot      action = "DescribeSpotInstanceRequests"
	terminate         action = "TerminateInstances"
	consoleOutput     action = "GetConsoleOutput"
)

// kinds are the actions of podgroup, for classes.
var kinds = map[action]podgroup.Action{
	runInstances: podgroup.ActionCreate, describeInstances: podgroup.ActionList, describeSpot: podgroup.ActionList, terminate: podgroup.ActionDelete, consoleOutput: podgroup.ActionLog,
}

// lacks are the codes of a creation that another subnet, which is in another zone, may not have.
var lacks = []string{
	"InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientAddressCapacity", "InsufficientVolumeCapacity",
	"InsufficientFreeAddressesInSubnet", "SpotMaxPriceTooLow", "UnfulfillableCapacity", "Unsupported", "VolumeTypeNotAvailableInZone",
}

// codes are EC2's. What the node's configuration names, and is not there, counts as exhausted: it may
// have been made a moment ago, and a person who makes it needs no other pods.
var codes = podgroup.Codes{
	Throttled: throttled,
	Exhausted: slices.Concat(lacks, []string{
		"*LimitExceeded", "MaxSpotInstanceCountExceeded", "ResourceCountExceeded", "ReservationCapacityExceeded", "PendingVerification",
		"InvalidAMIID.*", "InvalidSubnetID.*", "InvalidSubnetId.*", "InvalidSubnet", "InvalidGroup.*", "InvalidGroupId.*", "InvalidKeyPair.*", "InvalidSecurityGroupID.*",
		"InvalidIamInstanceProfile*", "VPCIdNotSpecified", "TagPolicyViolation", "OperationNotPermitted", "IncorrectInstanceState", "IncorrectState",
	}),
	Denied: denied,
	Away:   []string{"InternalError", "InternalFailure", "ServerInternal", "ServiceUnavailable", "Unavailable", "RetryableError"},
	// The instance of a list or a deletion, which has to have an end, is handled before.
	Refused: []string{
		"InvalidParameter", "InvalidParameterValue", "InvalidParameterCombination", "InvalidParameterDependency", "ClientInvalidParameterValue", "MissingParameter", "UnknownParameter", "MissingInput",
		"InvalidBlockDeviceMapping", "InvalidUserData.Malformed", "InvalidTagKey.Malformed", "UnsupportedOperation", "ValidationError", "BootForVolumeTypeUnsupported", "EncryptedVolumesNotSupported",
	},
}

var (
	throttled = []string{"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "RequestResourceCountExceeded"}
	denied    = []string{
		"UnauthorizedOperation", "AuthFailure", "AuthFailure.*", "AccessDenied*", "SignatureDoesNotMatch", "IncompleteSignature", "InvalidClientTokenId", "MissingAuthenticationToken",
		"RequestExpired", "InvalidSecurity.RequestHasExpired", "ExpiredToken*", "OptInRequired", "Blocked", "AccountDisabled", "UnrecognizedClient*",
	}
)

// notFound is the code of an instance that is gone, or that EC2 does not know yet.
const notFound = "InvalidInstanceID.NotFound"

// classify returns err, of a call of an action, with its class. The text has no parameter's value
// that is secret: EC2 repeats none of the user data.
func classify(a action, err error) error {
	if err == nil {
		return nil
	}
	answer, ok := errors.AsType[*apiError](err)
	if !ok {
		return errdefs.AsUnavailable(fmt.Errorf("cannot call %s of EC2: %w", a, err))
	}
	code := answer.Code
	if isConfigured(code, answer.Message) {
		code = notReady
	}
	return codes.Classify(kinds[a], code, answer.status, 0, fmt.Errorf("EC2 refuses %s: %w", a, answer))
}

// The texts of two refusals of what the node's configuration has, which EC2 gives codes of requests
// that are wrong: an instance profile that EC2 does not know, or does not know yet, and a root device
// that is not the image's, and thus would be a further volume without a size.
const (
	noProfile = "IAM Instance Profile"
	noSize    = "size or snapshotId"
)

// notReady is one of the codes that count as exhausted.
const notReady = "InvalidIamInstanceProfile"

func isConfigured(code, message string) bool {
	return code == "InvalidParameterValue" && strings.Contains(message, noProfile) || code == "MissingParameter" && strings.Contains(message, noSize)
}

// outcome is what the error of a creation says of the instance.
type outcome int

const (
	// decided: it was made, or was not, also by earlier calls with the same client token.
	decided outcome = iota
	// uncertain: it may have been made.
	uncertain
	// unchanged: this call has made nothing, and says nothing of earlier ones.
	unchanged
)

// outcomeOf returns what the error of a creation says of the instance.
func outcomeOf(err error) outcome {
	if err == nil {
		return decided
	}
	answer, ok := errors.AsType[*apiError](err)
	_, not := errors.AsType[notCalled](err)
	switch {
	case ok && (slices.Contains(lacks, answer.Code) || strings.HasPrefix(answer.Code, "Idempotent") || errdefs.IsPermanent(err)):
		return decided
	case ok && slices.Contains(throttled, answer.Code), ok && answer.status < http.StatusInternalServerError, not:
		return unchanged
	}
	return uncertain
}

// explain says what a person can do about an error.
func explain(code, message string) string {
	// The encoded part is long, and of use only to who may decode it.
	if i := strings.Index(message, "Encoded authorization failure message:"); i >= 0 {
		message = strings.TrimSpace(message[:i])
	}
	if len(message) > 500 {
		message = strings.ToValidUTF8(message[:500], "") + "..."
	}
	switch code {
	case "UnauthorizedOperation":
		return message + " (the policy of these credentials, or one of the organization, lacks a right that providers/machine/ec2/README.md has; CloudTrail has the whole message)"
	case "AuthFailure.ServiceLinkedRoleCreationNotPermitted":
		return message + " (once in an account: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com)"
	case "AuthFailure":
		if !strings.Contains(message, "credentials") { // of an image, for instance
			return message
		}
		return message + " (the credentials are not valid, or not for this region, or the clock of this machine is wrong)"
	case "InvalidClientTokenId", "SignatureDoesNotMatch":
		return message + " (the credentials are not valid, or not for this region)"
	case "MissingParameter":
		if strings.Contains(message, noSize) {
			return message + " (the image has another root device than ec2.rootDevice, or the rootDevice of its type, says)"
		}
	case "RequestExpired", "InvalidSecurity.RequestHasExpired":
		return message + " (the credentials have expired, or the clock of this machine is wrong by more than fifteen minutes)"
	case "OptInRequired":
		return message + " (the account has not subscribed to EC2, or to the image in the Marketplace)"
	case "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded":
		return message + " (the quota of the account in this region: Service Quotas has it)"
	}
	return message
}
