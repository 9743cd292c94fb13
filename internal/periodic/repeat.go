// Package periodic calls functions again and again, without a goroutine between the calls.
package periodic

import (
	"context"
	"math"
	"time"
)

// Run calls f after the time first, and from then on each time after what f
// returned, until ctx ends or that was negative. Calls do not overlap. wait returns, once ctx has ended, when the last call has.
func Run(ctx context.Context, first time.Duration, f func(context.Context) (next time.Duration)) (wait func()) {
	_, wait = RunWoken(ctx, first, f)
	return wait
}

// RunWoken is Run for what may become due earlier: wake has f called at once, or when
// the call that is under way has returned. It does not block.
func RunWoken(ctx context.Context, first time.Duration, f func(context.Context) (next time.Duration)) (wake, wait func()) {
	turn := make(chan struct{}, 1) // held by the one that may set the timer
	var timer *time.Timer
	call := func() {
		turn <- struct{}{}
		defer func() { <-turn }()
		if ctx.Err() != nil {
			return
		}
		if next := f(ctx); next >= 0 && ctx.Err() == nil {
			timer.Reset(next)
		}
	}
	turn <- struct{}{}
	if first > 0 {
		timer = time.AfterFunc(first, call)
	} else {
		// Not a timer that is due at once: under the race detector Go 1.26 crashes now and
		// then when one is made in a bubble of testing/synctest.
		timer = time.AfterFunc(math.MaxInt64, call)
		go call() // ends as when the timer calls it
	}
	<-turn
	wake = func() {
		go call() // ends as when the timer calls it
	}
	return wake, func() {
		turn <- struct{}{}
		timer.Stop()
		<-turn
	}
}
