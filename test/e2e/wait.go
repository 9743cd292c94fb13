package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often is asked for what cannot be watched.
const pollInterval = 500 * time.Millisecond

// notYet is the answer of a check that will be made again.
func notYet(format string, args ...any) error { return fmt.Errorf(format, args...) }

// eventually makes a check until it returns nil, and fails t when it has not in
// time, or answers what does not change by waiting.
func (s *EndToEndTestSuite) eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := s.poll(t.Context(), check); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func (s *EndToEndTestSuite) poll(ctx context.Context, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, s.cfg.WatchTimeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil {
			return true, nil
		}
		if last == nil || ctx.Err() == nil { // that the time is up says less than what was wrong before
			last = err
		}
		if hopeless(err) {
			return false, err
		}
		return false, nil
	})
	switch {
	case err == nil || last == nil || hopeless(err):
		return err
	case wait.Interrupted(err):
		return fmt.Errorf("not within %v: %w", s.cfg.WatchTimeout, last)
	}
	return err
}

// hopeless tells whether an answer of the API server or the kubelet will be the
// same next time.
func hopeless(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || statusCode(err) == http.StatusNotImplemented
}

// statusCode is the HTTP status behind an error of the client, or 0.
func statusCode(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}
