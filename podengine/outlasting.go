package podengine

import (
	"context"
	"time"
)

// unawaited is how long a call to the runtime goes on that nobody waits for.
const unawaited = 10 * time.Second

// outlasting is a context for a call to the runtime that starts processes or ends
// them. Such a call is not broken off as soon as its purpose is gone,
// since the pod is deleted or the process ends: what a runtime makes of that half
// way is not to be relied on. containerd 1.6 leaves shims without a container,
// containers that nobody can remove, and starts that leave unknown whether
// the command has run.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-call.Done():
		case <-time.After(unawaited):
			cancel()
		}
	})
	return call, func() {
		stop()
		cancel()
	}
}
