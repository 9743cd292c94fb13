package enginetest_test

import (
	"log/slog"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// The log lines of the code under test would hide the tests' own output.
func init() { log.L = log.FromSlog(slog.New(slog.DiscardHandler)) }
