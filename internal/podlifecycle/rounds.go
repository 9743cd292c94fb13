package podlifecycle

import (
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// How often a provider that notifies is asked for its pods, only to find those
// that nobody wants any more, and what was not notified: each minute while there
// is something to find, and less and less often while there is not. Five minutes
// are what the kubelet takes for a runtime that has events (KEP-3386).
const (
	minCheckInterval = time.Minute
	maxCheckInterval = 5 * time.Minute
)

// maxFailedPause is the longest pause after lists of a polled provider that failed,
// unless its interval is longer.
const maxFailedPause = time.Minute

// rounds plans when the provider is asked for its pods. It is pure: one round after
// the other.
type rounds struct {
	every    time.Duration // the configured interval
	notified bool          // the provider notifies: it is not polled

	interval time.Duration // between rounds that succeed; zero before the first
	made     int           // rounds that succeeded
	failures int           // lists that failed since the last success
}

// next returns the pause after a round in which the list failed with err, or else
// found nothing that has to be looked at again, if it was quiet. Each failure in a
// row doubles the pause; an error that names a time has the next round wait for it.
func (r *rounds) next(quiet bool, err error) time.Duration {
	if r.interval == 0 {
		r.interval = r.every
	}
	if err != nil {
		r.failures++
		return r.pauseAfter(err)
	}
	r.failures = 0
	r.made++
	switch {
	case !r.notified || r.made < orphanAfter:
	case r.made == orphanAfter || !quiet:
		r.interval = minCheckInterval
	default:
		r.interval = min(2*r.interval, maxCheckInterval)
	}
	return r.interval
}

func (r *rounds) pauseAfter(err error) time.Duration {
	if delay, ok := errdefs.RetryAfter(err); ok && delay > 0 {
		return max(delay, r.every)
	}
	longest := max(maxFailedPause, r.interval)
	if r.notified {
		longest = max(maxCheckInterval, r.interval)
	}
	pause := r.interval
	for range r.failures {
		if pause >= longest {
			break
		}
		pause = min(2*pause, longest)
	}
	return pause
}
