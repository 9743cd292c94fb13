package eci

import (
	"log/slog"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// The log would hide the output of the tests.
func init() { log.L = log.FromSlog(slog.New(slog.DiscardHandler)) }
