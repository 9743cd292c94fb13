package periodic

import (
	"context"
	"sync"
	"time"
)

// gaugeShare is how many times longer than a measurement took a value is not measured
// again.
const gaugeShare = 20

// Gauge is a value that may take long to measure, such as what a tree of very many files
// takes of a disk. It is measured a twentieth of the time at most. The zero Gauge has not
// been measured. It is safe for concurrent use.
type Gauge[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time     // when it was measured; zero for never
	took  time.Duration // and how long that took
	busy  chan struct{} // closed when the measurement that is under way has ended
}

// Last returns the value that was measured last, and whether one was.
func (g *Gauge[T]) Last() (value T, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.value, !g.at.IsZero()
}

// Get returns the value, measured not longer ago than oldest unless that takes too long.
// To measure, it calls start with a function that start has to run in a goroutine, and
// that calls measure with the last value. Get waits for the end of a measurement as long
// as ctx lasts, and returns the last value else: the measurement goes on.
func (g *Gauge[T]) Get(ctx context.Context, oldest time.Duration, start func(func()), measure func(last T) T) T {
	g.mu.Lock()
	begin := time.Now()
	busy, last := g.busy, g.value
	starts := busy == nil && (g.at.IsZero() || begin.Sub(g.at) >= max(oldest, gaugeShare*g.took))
	if starts {
		busy = make(chan struct{})
		g.busy = busy
	}
	g.mu.Unlock()
	if starts {
		start(func() {
			defer close(busy)
			value := measure(last)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.value, g.at, g.busy = value, time.Now(), nil
			g.took = g.at.Sub(begin)
		})
	}
	if busy != nil {
		select {
		case <-busy:
		case <-ctx.Done():
		}
	}
	value, _ := g.Last()
	return value
}
