package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// awayDelay is the longest delay between two tries of a write while the API server is
// away: what waits goes out seconds after its return. The kubelet's is ten seconds.
const awayDelay = 5 * time.Second

// whileAway is f, and keeps the delays short of writes that fail since the API server
// is away.
func (pc *PodController) whileAway(f ShouldRetryFunc, away func(key string, err error) bool) ShouldRetryFunc {
	return func(ctx context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error) {
		if _, named := errdefs.RetryAfter(err); named || timesTried < triesToAwayDelay || !away(key, err) {
			return f(ctx, key, timesTried, originallyAdded, err)
		}
		delay := awayDelay - rand.N(awayDelay/5)
		return &delay, nil
	}
}

// triesToAwayDelay is the number of tries after which the rate limiter's delays would
// be longer than awayDelay.
const triesToAwayDelay = 7

// statusMayBeTaken reports whether a status that was not taken may be as soon as the API
// server is there again, and knows its roles.
func (pc *PodController) statusMayBeTaken(key string, err error) bool {
	if apierrors.IsForbidden(err) {
		r := pc.records.get(key)
		if r == nil {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return time.Since(r.forbidden) < forbiddenPatience
	}
	return isAway(err) || apierrors.IsInternalError(err)
}

// isAway reports whether an error comes from the way to the API server, or from one
// that cannot serve for the moment.
func isAway(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err)
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
