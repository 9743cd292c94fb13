package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// profileSeconds is how long the processor is profiled: the whole of a run of
// some thousand pods.
const profileSeconds = 20

// profile reads profiles of a node's agent through the API server: one of the
// processor from now on, and in the end, when the returned function is called,
// one of the memory that was allocated. (That of the memory in use is read while
// the pods run.)
func (b *podsBench) profile(ctx context.Context, node string) (finish func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- b.saveProfile(ctx, node, "cpu", fmt.Sprintf("profile?seconds=%d", profileSeconds))
	}()
	return func() error {
		defer cancel()
		if err := b.saveProfile(ctx, node, "allocs", "allocs"); err != nil {
			return err
		}
		return <-done
	}
}

func (b *podsBench) saveProfile(ctx context.Context, node, name, query string) error {
	data, err := b.profileOf(ctx, node, "/debug/pprof/"+query)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.profiles, name+".pprof"), data, 0o644)
}
