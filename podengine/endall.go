package podengine

import (
	"context"
	"fmt"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// EndAll ends all pods within a grace period, as if they had been deleted, and
// waits until nothing is left of them, or ctx ends. From then on no pod is taken.
// It is for programs whose pods must not outlive the process; Close comes after it.
func (e *Engine) EndAll(ctx context.Context, grace time.Duration) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	for _, w := range e.all() {
		if err := w.delete(time.Now().Add(grace)); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot keep that a pod is to end")
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		e.mu.Lock()
		left := len(e.workers)
		e.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d pods have not ended: %w", left, context.Cause(ctx))
		}
	}
}
