// Package faults draws histories from a seed, of what is done to pods, to the
// agent, to its API server and to its provider, and sees to it that what must
// always hold does (docs/architecture.md): at each step where it can be seen, and
// at rest once the faults are over.
//
// TestRandomHistories does it in virtual time, with an API server in memory. A
// history that breaks something is made shorter and printed; put it in testdata.
// For long runs:
//
//	go test ./test/faults -run Random -faults.histories=10000
//
// TestSoak has one agent work on the real control plane for a while ("make soak":
// for half an hour), and sees to it that nothing of that stays.
package faults

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // what the libraries say of the faults
	// One of the handlers sleeps if the last error was a moment ago, by a clock
	// that it shares between bubbles, each of which begins in the year 2000.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}
