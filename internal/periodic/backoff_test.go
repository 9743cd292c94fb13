package periodic_test

import (
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// However long an outage lasts, the delays grow to the longest, and no further.
func TestBackoff(t *testing.T) {
	const longest = 10 * time.Second
	backoff := periodic.Backoff(longest)
	shortest := periodic.FirstDelay
	for range 1000 {
		delay := backoff.Step()
		if delay < shortest || delay > min(shortest*3/2, longest) {
			t.Fatalf("a delay of %v, want %v to half as much more, and %v at most", delay, shortest, longest)
		}
		shortest = min(2*shortest, longest*2/3)
	}
}

func TestDoubled(t *testing.T) {
	delay := time.Duration(0)
	for _, want := range []time.Duration{10, 20, 40, 50, 50} {
		if delay = periodic.Doubled(delay, 10, 50); delay != want {
			t.Errorf("got %d, want %d", delay, want)
		}
	}
}
