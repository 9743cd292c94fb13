package errdefs_test

import (
	"errors"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func Example() {
	// What a provider does: say of an error what kind it is.
	err := errdefs.AsUnavailable(errors.New("connection refused"))
	err = fmt.Errorf("start the container group: %w", err)

	// What anybody further up asks.
	fmt.Println(errdefs.IsNotFound(err), errdefs.ClassOf(err))
	fmt.Println(errdefs.Describe(err).HTTPStatus, err)
	// Output:
	// false unavailable
	// 503 start the container group: connection refused
}
