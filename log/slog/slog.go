// Package slog lets the library log through the standard library's log/slog.
// Output, format and level are those of the slog.Handler. It is what log.L does
// until a program assigns another logger; the implementation is log.FromSlog.
package slog

import (
	"log/slog"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// LevelFatal is the level of Fatal and Fatalf, above slog.LevelError.
const LevelFatal = log.LevelFatal

// FromSlog returns a logger that logs with logger, its attributes included. Nil
// stands for slog.Default() at the time of each line.
func FromSlog(logger *slog.Logger) log.Logger { return log.FromSlog(logger) }
