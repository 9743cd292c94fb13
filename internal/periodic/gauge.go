package periodic

import (
	"context"
	"sync"
	"time"
)

const (
	// gaugeShare is how many times longer than a measurement took a value is not measured
	// again, but for longestPause at most.
	gaugeShare   = 20
	longestPause = 10 * time.Minute
)

// Gauge is a value that may take long to measure, such as what a tree of very many files
// takes of a disk. It is measured a twentieth of the time, or again after ten minutes. The
// zero Gauge has not been measured. It is safe for concurrent use.
type Gauge[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time     // when it was measured; zero for never
	took  time.Duration // and how long that took
	busy  chan struct{} // closed when the measurement that is under way has ended
}

// Last returns the value that was measured last, or as far as it is known from the
// measurement that is under way, and whether it was ever measured to the end.
func (g *Gauge[T]) Last() (value T, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.value, !g.at.IsZero()
}

// Start begins a measurement, unless the value was measured not longer ago than oldest, or
// one is under way, or took too long. It returns the channel that is closed when the one
// that is under way has ended; nil if none is. To measure, it calls start with a function
// that start has to run in a goroutine, and that calls measure with the last value. Measure
// may call soFar with what replaces the last value before it ends.
func (g *Gauge[T]) Start(oldest time.Duration, start func(func()), measure func(last T, soFar func(T)) T) (busy <-chan struct{}) {
	g.mu.Lock()
	begin := time.Now()
	if g.busy != nil || !g.at.IsZero() && begin.Sub(g.at) < max(oldest, min(gaugeShare*g.took, longestPause)) {
		defer g.mu.Unlock()
		return g.busy
	}
	ended, last := make(chan struct{}), g.value
	g.busy = ended
	g.mu.Unlock()
	start(func() {
		defer close(ended)
		value := measure(last, func(value T) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.value = value
		})
		g.mu.Lock()
		defer g.mu.Unlock()
		g.value, g.at, g.busy = value, time.Now(), nil
		g.took = g.at.Sub(begin)
	})
	return ended
}

// Await waits until all these measurements have ended, as Start returned them, but no longer
// than ctx lasts: they go on.
func Await(ctx context.Context, busy ...<-chan struct{}) {
	for _, ended := range busy {
		if ended == nil {
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}
