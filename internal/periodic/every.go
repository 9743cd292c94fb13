package periodic

import (
	"context"
	"time"
)

// Every calls f after each interval until ctx ends or f returns false. It returns when
// the last call has. Unlike Run it has a goroutine wait between the calls: that of the caller.
func Every(ctx context.Context, interval time.Duration, f func(context.Context) (more bool)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !f(ctx) {
			return
		}
	}
}

// Sleep returns nil after the time, or what ended ctx before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
