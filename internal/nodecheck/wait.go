package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often is asked for what cannot be watched.
const pollInterval = 500 * time.Millisecond

// patient is ctx for a single thing that is waited for.
func (n *Node) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, n.Patience)
}

// within is ctx for at most d, after which its cause says so.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not within %v", d))
}

// Poll makes a check until it returns nil, for what cannot be watched. The error
// is the check's last one: when time is up, or at once if it will not change by
// waiting.
func (n *Node) Poll(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := n.patient(ctx)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
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
	if err != nil && last != nil && !hopeless(err) {
		return fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	return err
}

// final is an error that will be the same next time.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// hopeless reports whether an answer of the API server or the kubelet will be the
// same next time.
func hopeless(err error) bool {
	var f final
	return errors.As(err, &f) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || statusCode(err) == http.StatusNotImplemented
}

// statusCode is the HTTP status behind an error of the client, or 0.
func statusCode(err error) int {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.code
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}
