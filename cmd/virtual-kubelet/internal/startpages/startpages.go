// Package startpages lets go of those pages of the executable that a process needs for its start
// alone: what hundreds of packages register takes 30 MB, half of what the process has in memory.
//
// The pages are the file's. The kernel drops them by itself where it is short of memory, but until
// then they count as the process's, and go last, since it has run them. What is needed again is
// mapped again when it is used, as a rule without reading the file.
package startpages

import (
	"context"
	"time"
)

// After is when a start is over: sooner or later does no harm.
const After = 10 * time.Second

// Drop drops the pages once that much time has passed, unless ctx ends before. It returns at once.
func Drop(ctx context.Context, after time.Duration) {
	timer := time.AfterFunc(after, func() { _ = drop() }) // where it cannot be, all is as before
	context.AfterFunc(ctx, func() { timer.Stop() })
}
