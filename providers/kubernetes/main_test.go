//go:build integration

package kubernetes_test

import (
	"flag"
	"os"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// TestMain runs more checks of the conformance kit in parallel than there are
// processors, since they mostly wait. It is the shim of processes, too.
func TestMain(m *testing.M) {
	runtime.MaybeShim()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
