package providercalls

import "context"

type releaseKey struct{}

// WithRelease returns ctx as the context of a call that does not count against the workers any
// more once release was called, which Waits does.
func WithRelease(ctx context.Context, release func()) context.Context {
	return context.WithValue(ctx, releaseKey{}, release)
}

// Waits reports that the call of the provider with this context only waits from now on, perhaps
// for minutes, such as for a machine to boot: other pods are worked on in its place. A provider
// that calls it bounds what it does at the same time by itself. Without WithRelease it does
// nothing.
func Waits(ctx context.Context) {
	if release, ok := ctx.Value(releaseKey{}).(func()); ok {
		release()
	}
}
