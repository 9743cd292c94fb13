package podengine

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	internalapi "k8s.io/cri-api/pkg/apis"
)

// runtimeName is what the runtime calls itself, as in the IDs of containers. The
// runtime is asked once, when it is there.
type runtimeName struct{ known atomic.Pointer[string] }

// learn asks the runtime, unless its name is known.
func (n *runtimeName) learn(ctx context.Context, runtime internalapi.RuntimeVersioner) error {
	if n.known.Load() != nil {
		return nil
	}
	version, err := runtime.Version(ctx, "v1")
	if err != nil {
		return fmt.Errorf("cannot talk to the container runtime: %w", err)
	}
	name := cmp.Or(version.RuntimeName, "unknown")
	n.known.Store(&name)
	return nil
}

// of returns the ID of a container as a status has it, with the runtime's name.
func (n *runtimeName) of(id string) string {
	name := "unknown"
	if known := n.known.Load(); known != nil {
		name = *known
	}
	return name + "://" + id
}

// bareID is the runtime's own ID of a container, of that in a status.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}
