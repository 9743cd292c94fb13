//go:build integration || containers

package providertest_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

const bin = "../../bin"

// TestMain has more checks side by side than there are processors, since they
// mostly wait, unless -parallel says how many.
func TestMain(m *testing.M) {
	runtime.MaybeShim()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// resolvesItself is for providers that resolve the environment of pods, and mount
// volumes, themselves.
func resolvesItself(cfg *nodeutil.NodeConfig) error {
	cfg.SkipDownwardAPIResolution = true
	return nil
}
