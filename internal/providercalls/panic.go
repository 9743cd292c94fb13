package providercalls

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Panicked returns an error for a panic of the provider in a method, with what recover
// returned, and logs its stack. It is for deferred functions, which call recover
// themselves.
func Panicked(ctx context.Context, method string, recovered any) error {
	err := fmt.Errorf("the provider panicked in %s: %v", method, recovered)
	log.G(ctx).WithError(err).WithField("stack", string(debug.Stack())).Error("The provider panicked")
	return err
}
