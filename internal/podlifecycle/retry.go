package podlifecycle

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/queue"
)

// DefaultRetry is the delay of node.DefaultRetryFunc, which describes it; nil is that of
// the rate limiter.
func DefaultRetry(timesTried, maxRetries int, err error) *time.Duration {
	if delay, ok := errdefs.RetryAfter(err); ok && delay > 0 {
		return &delay
	}
	if errdefs.Describe(err).Retry == errdefs.RetrySlowly || timesTried > maxRetries {
		longest := queue.MaxDelay
		return &longest
	}
	return nil
}

// byName calls f, the keys of which are names, for keys that are UIDs.
func (pc *Controller) byName(f queue.ShouldRetryFunc) queue.ShouldRetryFunc {
	return func(ctx context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error) {
		if r := pc.records.get(types.UID(key)); r != nil {
			key = r.name.String()
		}
		return f(ctx, key, timesTried, originallyAdded, err)
	}
}

// awayDelay is the longest delay between two tries of a write while the API server is
// away: what waits goes out seconds after its return. The kubelet's is ten seconds.
const awayDelay = 5 * time.Second

// whileAway is f, and keeps the delays short of writes that fail since the API server
// is away.
func (pc *Controller) whileAway(f queue.ShouldRetryFunc, away func(key string, err error) bool) queue.ShouldRetryFunc {
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
func (pc *Controller) statusMayBeTaken(key string, err error) bool {
	if apierrors.IsForbidden(err) {
		r := pc.records.get(types.UID(key))
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
		apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// holding is f, and has the call that failed wait as long as its error asks for
// (errdefs.RetryAfter), also if something else about the pod changes meanwhile.
func (pc *Controller) holding(f queue.ShouldRetryFunc) queue.ShouldRetryFunc {
	return func(ctx context.Context, key string, timesTried int, originallyAdded time.Time, err error) (*time.Duration, error) {
		delay, giveUp := f(ctx, key, timesTried, originallyAdded, err)
		if _, named := errdefs.RetryAfter(err); named && delay != nil && giveUp == nil {
			if r := pc.records.get(types.UID(key)); r != nil {
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
