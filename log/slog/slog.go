// Package slog lets the library log through the standard library's log/slog.
// Output, format and level are those of the slog.Handler.
package slog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// LevelFatal is the level of Fatal and Fatalf, above slog.LevelError.
const LevelFatal = slog.Level(12)

var (
	_ log.Logger        = adapter{}
	_ log.CallerSkipper = adapter{}
)

type adapter struct {
	logger *slog.Logger
	fields *fields // nil means none
	skip   int
}

// fields are kept for the lines that are written: a handler renders at once what
// it is given for all lines, and most loggers never write one.
type fields struct {
	before *fields
	attrs  []slog.Attr
}

func (f *fields) addTo(record *slog.Record) {
	if f != nil {
		f.before.addTo(record)
		record.AddAttrs(f.attrs...)
	}
}

// FromSlog returns a logger that logs with logger, its attributes included. Nil
// stands for slog.Default().
func FromSlog(logger *slog.Logger) log.Logger {
	if logger == nil {
		logger = slog.Default()
	}
	return adapter{logger: logger}
}

func (a adapter) Debug(args ...any)            { a.print(slog.LevelDebug, args) }
func (a adapter) Debugf(f string, args ...any) { a.printf(slog.LevelDebug, f, args) }
func (a adapter) Info(args ...any)             { a.print(slog.LevelInfo, args) }
func (a adapter) Infof(f string, args ...any)  { a.printf(slog.LevelInfo, f, args) }
func (a adapter) Warn(args ...any)             { a.print(slog.LevelWarn, args) }
func (a adapter) Warnf(f string, args ...any)  { a.printf(slog.LevelWarn, f, args) }
func (a adapter) Error(args ...any)            { a.print(slog.LevelError, args) }
func (a adapter) Errorf(f string, args ...any) { a.printf(slog.LevelError, f, args) }

// Fatal logs at LevelFatal and exits with status 1.
func (a adapter) Fatal(args ...any) {
	a.print(LevelFatal, args)
	os.Exit(1)
}

// Fatalf logs at LevelFatal and exits with status 1.
func (a adapter) Fatalf(f string, args ...any) {
	a.printf(LevelFatal, f, args)
	os.Exit(1)
}

func (a adapter) WithField(key string, value any) log.Logger {
	a.fields = &fields{a.fields, []slog.Attr{slog.Any(key, value)}}
	return a
}

// WithFields adds the fields in the order of their keys.
func (a adapter) WithFields(added log.Fields) log.Logger {
	attrs := make([]slog.Attr, 0, len(added))
	for key, value := range added {
		attrs = append(attrs, slog.Any(key, value))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	a.fields = &fields{a.fields, attrs}
	return a
}

// WithError adds err as the attribute "error".
func (a adapter) WithError(err error) log.Logger {
	return a.WithField("error", err)
}

// WithCallerSkip implements log.CallerSkipper.
func (a adapter) WithCallerSkip(calls int) log.Logger {
	a.skip += calls
	return a
}

func (a adapter) print(level slog.Level, args []any) {
	if a.logger.Enabled(context.Background(), level) {
		a.handle(level, fmt.Sprint(args...))
	}
}

func (a adapter) printf(level slog.Level, format string, args []any) {
	if a.logger.Enabled(context.Background(), level) {
		a.handle(level, fmt.Sprintf(format, args...))
	}
}

// handle bypasses slog.Logger's methods, which would take this file for the
// source of the line.
func (a adapter) handle(level slog.Level, msg string) {
	const ours = 4 // runtime.Callers, handle, print or printf, Info and the like
	var pcs [1]uintptr
	runtime.Callers(ours+a.skip, pcs[:])
	record := slog.NewRecord(time.Now(), level, msg, pcs[0])
	a.fields.addTo(&record)
	// As with slog.Logger itself, a handler that fails has nobody to tell.
	_ = a.logger.Handler().Handle(context.Background(), record)
}
