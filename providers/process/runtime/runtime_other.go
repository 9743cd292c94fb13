//go:build !linux

package runtime

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Runtime is a container runtime over processes, on Linux.
type Runtime struct {
	cri.RuntimeService
	cri.ImageManagerService
}

// MaybeShim does nothing here.
func MaybeShim() {}

// New returns an error: there is no such runtime for this system.
func New(context.Context, Config) (*Runtime, error) {
	return nil, errors.New("containers as processes need Linux (process groups, /proc and subreapers): run virtual-kubelet there, or use another provider")
}

// Streams returns nil.
func (*Runtime) Streams() streaming.Runtime { return nil }

// Close does nothing.
func (*Runtime) Close(context.Context) error { return nil }
