package node

import (
	"context"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
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
	if delay, ok := errdefs.RetryAfter(err); ok && delay > 0 {
		return &delay, nil
	}
	if errdefs.Describe(err).Retry == errdefs.RetrySlowly || timesTried > MaxRetries {
		longest := queue.MaxDelay
		return &longest, nil
	}
	return nil, nil
}

// holding is f, and has the call that failed wait as long as its error asks for
// (errdefs.RetryAfter), whatever else about the pod changes meanwhile.
func (pc *PodController) holding(f ShouldRetryFunc) ShouldRetryFunc {
	return func(ctx context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error) {
		delay, giveUp := f(ctx, key, timesTried, originallyAdded, err)
		if _, named := errdefs.RetryAfter(err); named && delay != nil && giveUp == nil {
			if r := pc.records.get(key); r != nil {
				r.mu.Lock()
				if r.retryAt == nil {
					r.retryAt = map[verb]time.Time{}
				}
				r.retryAt[r.tried] = time.Now().Add(*delay)
				r.mu.Unlock()
			}
		}
		return delay, giveUp
	}
}

// begins records that an action is about to be taken, unless its last try failed and
// it has to wait: for that long.
func (r *podRecord) begins(do verb) (rest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rest = time.Until(r.retryAt[do]); rest > 0 {
		return rest
	}
	r.tried = do
	return 0
}
