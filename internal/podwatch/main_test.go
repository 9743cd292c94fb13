package podwatch_test

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// One of the handlers sleeps if the last error was a moment ago, by a clock
	// that it shares between bubbles, each of which begins in the year 2000.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}
