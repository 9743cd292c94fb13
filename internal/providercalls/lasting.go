package providercalls

import (
	"context"
	"runtime"
	"sync"
	"weak"
)

// Lasting is the context of a provider's call. It may be ended while the call runs, and goes on after it, until what
// runs the provider ends, as with the original library: providers go on with it in goroutines, such as interLink's, which
// asks its server to create and to delete pods after the method has returned. Of a context that
// nobody has any more nothing is left, though its parent lives as long as the node. A goroutine that has kept nothing
// but the channel of Done does not learn of the parent's end.
type Lasting struct {
	context.Context // ends by End alone
	// End ends the context, if it has not ended yet.
	End    context.CancelCauseFunc
	parent context.Context
	follow sync.Once
}

// NewLasting returns a context that ends with parent, with its cause, and has the values of another.
func NewLasting(values, parent context.Context) *Lasting {
	ctx, end := context.WithCancelCause(context.WithoutCancel(values))
	return &Lasting{Context: ctx, End: end, parent: parent}
}

// Done has the context end with its parent from now on; most calls never ask.
func (c *Lasting) Done() <-chan struct{} {
	c.follow.Do(func() {
		parent, weakly := c.parent, weak.Make(c)
		stop := context.AfterFunc(parent, func() {
			if c := weakly.Value(); c != nil {
				c.End(context.Cause(parent))
			}
		})
		runtime.AddCleanup(c, func(stop func() bool) { stop() }, stop)
	})
	return c.Context.Done()
}

// Err is that of the parent, too, also where nobody waits for it.
func (c *Lasting) Err() error {
	if c.parent.Err() != nil {
		c.End(context.Cause(c.parent)) // the first cause counts
	}
	return c.Context.Err()
}
