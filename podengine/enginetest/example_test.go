package enginetest_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/enginetest"
)

// The engine of a test has the runtime in memory for Runtime and Images.
func Example() {
	runtime := &enginetest.Runtime{Before: func(method string) error {
		fmt.Println("the engine calls", method)
		return nil
	}}
	version, err := runtime.Version(context.Background(), "v1")
	fmt.Println(version.GetRuntimeName(), err)
	// Output:
	// the engine calls Version
	// fake <nil>
}
