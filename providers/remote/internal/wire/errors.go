package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// codeOf has the classes that are not UnknownClass.
var codeOf = map[errdefs.Class]codes.Code{
	errdefs.PermanentClass:    codes.FailedPrecondition,
	errdefs.InvalidInputClass: codes.InvalidArgument,
	errdefs.NotFoundClass:     codes.NotFound,
	errdefs.ConflictClass:     codes.Aborted,
	errdefs.RetryAfterClass:   codes.ResourceExhausted,
	errdefs.UnavailableClass:  codes.Unavailable,
}

// longestRetry is the longest delay that a server can demand: it may be wrong, or another one.
const longestRetry = time.Hour

// ToStatus returns the error of a gRPC server for the error of a provider.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	class := errdefs.ClassOf(err)
	if class == errdefs.NotFoundClass && !errdefs.IsOnlyNotFound(err) {
		class = errdefs.UnknownClass // a failure joined with it counts
	}
	code, ok := codeOf[class]
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		code = codes.Unimplemented
	case ok:
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	default:
		code = codes.Unknown
	}
	s := status.New(code, err.Error())
	if delay, named := errdefs.RetryAfter(err); named && code == codes.ResourceExhausted {
		if detailed, failed := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); failed == nil {
			s = detailed
		}
	}
	return s.Err()
}

// maxText is the most bytes of a server's text that are read: it goes to logs, events and the
// statuses of pods.
const maxText = 4 << 10

// Text returns a text that a server sent, or its beginning.
func Text(sent string) string {
	if len(sent) <= maxText {
		return sent
	}
	return strings.ToValidUTF8(sent[:maxText], "") + "..."
}

// FromStatus returns the error of a provider for that of a gRPC client. It keeps the
// text that the server gave.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := errors.New(Text(s.Message()))
	switch s.Code() {
	case codes.NotFound:
		return errdefs.AsNotFound(text)
	case codes.InvalidArgument:
		return errdefs.AsInvalidInput(text)
	case codes.FailedPrecondition:
		return errdefs.AsPermanent(text)
	case codes.Aborted:
		return errdefs.AsConflict(text)
	case codes.Unavailable:
		return errdefs.AsUnavailable(text)
	case codes.Unimplemented:
		return fmt.Errorf("%w: %w", text, errors.ErrUnsupported)
	case codes.Canceled:
		return fmt.Errorf("%w: %w", text, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %w", text, context.DeadlineExceeded)
	case codes.ResourceExhausted:
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				return errdefs.AsRetryAfter(text, min(info.GetRetryDelay().AsDuration(), longestRetry))
			}
		}
		return errdefs.AsUnavailable(text)
	default:
		return text
	}
}
