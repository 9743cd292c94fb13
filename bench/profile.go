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
		done <- b.readProfile(ctx, node, "cpu", fmt.Sprintf("profile?seconds=%d", profileSeconds))
	}()
	return func() error {
		defer cancel()
		if err := b.readProfile(ctx, node, "allocs", "allocs"); err != nil {
			return err
		}
		return <-done
	}
}

func (b *podsBench) readProfile(ctx context.Context, node, name, query string) error {
	data, err := b.client.CoreV1().RESTClient().Get().RequestURI("/api/v1/nodes/" + node + "/proxy/debug/pprof/" + query).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read a profile of node %s: %w", node, err)
	}
	return os.WriteFile(filepath.Join(b.profiles, name+".pprof"), data, 0o644)
}
