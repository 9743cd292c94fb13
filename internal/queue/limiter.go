package queue

import (
	"math/rand/v2"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// The delays of DefaultRateLimiter.
const (
	baseDelay = periodic.FirstDelay
	// MaxDelay is the longest delay between two tries of a key.
	MaxDelay = time.Minute
)

// DefaultRateLimiter delays the retries of each key by 100 ms, doubling up to
// MaxDelay, less up to a fifth at random so that what failed together does not
// come back together.
func DefaultRateLimiter() workqueue.TypedRateLimiter[any] {
	return jittered{workqueue.NewTypedItemExponentialFailureRateLimiter[any](baseDelay, MaxDelay)}
}

type jittered struct {
	workqueue.TypedRateLimiter[any]
}

func (l jittered) When(key any) time.Duration {
	delay := l.TypedRateLimiter.When(key)
	return delay - time.Duration(rand.Int64N(int64(delay)/5+1))
}
