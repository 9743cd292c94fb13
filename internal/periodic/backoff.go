package periodic

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// FirstDelay is the first delay of a Backoff.
const FirstDelay = 100 * time.Millisecond

// Backoff returns the delays between attempts at what a server does not answer, or
// refuses: FirstDelay, doubled each time up to longest. As much as a third of a delay is
// random, so that clients that failed together do not come back together.
func Backoff(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: FirstDelay, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: longest * 2 / 3}
}

// Doubled returns the delay that follows last: first if there was none, else twice last,
// up to longest. It is for what a kubelet doubles and shows people: these delays are exact.
func Doubled(last, first, longest time.Duration) time.Duration {
	return min(max(2*last, first), longest)
}
