package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestErrorsKeepTheirClass(t *testing.T) {
	failed := errors.New("it failed")
	for name, err := range map[string]error{
		"permanent":   errdefs.AsPermanent(failed),
		"invalid":     errdefs.AsInvalidInput(failed),
		"not found":   errdefs.AsNotFound(failed),
		"conflict":    errdefs.AsConflict(failed),
		"retry after": errdefs.AsRetryAfter(failed, 90*time.Second),
		"unavailable": errdefs.AsUnavailable(failed),
		"unknown":     failed,
		"joined":      errors.Join(failed, errdefs.NotFound("no such pod")),
		"unsupported": fmt.Errorf("no exec: %w", errors.ErrUnsupported),
		"cancelled":   fmt.Errorf("gone: %w", context.Canceled),
		"too late":    fmt.Errorf("slow: %w", context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			got := FromStatus(ToStatus(err))
			if is, want := errdefs.IsOnlyNotFound(got), errdefs.IsOnlyNotFound(err); is != want {
				t.Errorf("not found: %v, want %v", is, want)
			}
			if class, want := errdefs.ClassOf(got), errdefs.ClassOf(err); class != want && name != "joined" {
				t.Errorf("the class is %s, want %s", class, want)
			}
			for _, kind := range []error{errors.ErrUnsupported, context.Canceled, context.DeadlineExceeded} {
				if errors.Is(got, kind) != errors.Is(err, kind) {
					t.Errorf("%v: %v, want %v", kind, errors.Is(got, kind), errors.Is(err, kind))
				}
			}
			delay, _ := errdefs.RetryAfter(got)
			if want, _ := errdefs.RetryAfter(err); delay != want {
				t.Errorf("the delay is %v, want %v", delay, want)
			}
		})
	}
	if ToStatus(nil) != nil || FromStatus(nil) != nil {
		t.Error("no error has become one")
	}
}

// A server that says too much is cut off.
func TestLongErrors(t *testing.T) {
	err := FromStatus(status.Error(codes.FailedPrecondition, strings.Repeat("ä", 1<<20)))
	if !errdefs.IsPermanent(err) || len(err.Error()) > maxText+3 || !utf8.ValidString(err.Error()) {
		t.Errorf("the text has %d bytes", len(err.Error()))
	}
}

// What gRPC says itself, without details, is tried again.
func TestErrorsOfTheTransport(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable} {
		if err := FromStatus(status.Error(code, "too large")); !errdefs.IsUnavailable(err) {
			t.Errorf("%s has become %v, of class %s", code, err, errdefs.ClassOf(err))
		}
	}
}
