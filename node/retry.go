package node

import (
	"context"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podlifecycle"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
)

// ShouldRetryFunc decides about a key (namespace/name) whose handling failed:
// it returns the delay after which to try again, nil for the delay of the
// queue's rate limiter, or an error to give the key up until something about
// the pod changes. timesTried counts from 1, originallyAdded is when the first
// of those tries was asked for.
type ShouldRetryFunc = queue.ShouldRetryFunc

// MaxRetries is the number of tries after which DefaultRetryFunc takes a
// failure for a lasting one, and goes on at the longest delay only. Set it
// before a controller is made, if at all.
var MaxRetries = 20

// DefaultRetryFunc is the ShouldRetryFunc of a PodControllerConfig that names
// none. It never gives a pod up: it takes the delay that the error asks for
// (errdefs.RetryAfter, if it is positive), a minute for errors that retries are not expected to
// cure (errdefs.RetrySlowly) and after MaxRetries tries, and else leaves the
// delay to the rate limiter.
var DefaultRetryFunc = func(_ context.Context, _ string, timesTried int, _ time.Time, err error) (*time.Duration, error) {
	return podlifecycle.DefaultRetry(timesTried, MaxRetries, err), nil
}
