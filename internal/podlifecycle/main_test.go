package podlifecycle

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // what the libraries say of scripted failures
	// One of the handlers sleeps if the last error was a moment ago, by a clock
	// that it shares between bubbles, each of which begins in the year 2000.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}
