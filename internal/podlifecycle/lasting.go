package podlifecycle

import (
	"context"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// lasting is the context of a provider's call. It may be ended while the call runs, and goes on after it, until its
// parent ends, as with the original library: providers go on with it in goroutines, such as interLink's, which asks its
// server to create and to delete pods after the method has returned. Of a context that
// nobody has any more nothing is left, though its parent lives as long as the node. A goroutine that has kept nothing
// but the channel of Done does not learn of the parent's end.
type lasting struct {
	context.Context // ends by end alone
	end             context.CancelCauseFunc
	parent          context.Context
	follow          sync.Once
}

func newLasting(parent context.Context) *lasting {
	ctx, end := context.WithCancelCause(context.WithoutCancel(parent))
	return &lasting{Context: ctx, end: end, parent: parent}
}

// Done has the context end with its parent from now on; most calls never ask.
func (c *lasting) Done() <-chan struct{} {
	c.follow.Do(func() {
		parent, weakly := c.parent, weak.Make(c)
		stop := context.AfterFunc(parent, func() {
			if c := weakly.Value(); c != nil {
				c.end(context.Cause(parent))
			}
		})
		runtime.AddCleanup(c, func(stop func() bool) { stop() }, stop)
	})
	return c.Context.Done()
}

// Err is that of the parent, too, also where nobody waits for it.
func (c *lasting) Err() error {
	if c.parent.Err() != nil {
		c.end(context.Cause(c.parent)) // the first cause counts
	}
	return c.Context.Err()
}

// endAfter ends the context if the call has not returned by then, when the caller calls returned.
func (c *lasting) endAfter(d time.Duration) (returned func() bool) {
	return time.AfterFunc(d, func() { c.end(errdefs.AsUnavailable(unanswered(d))) }).Stop
}
