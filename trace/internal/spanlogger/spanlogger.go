// Package spanlogger is the logger of a span: it records each line in the span
// and passes it on. How a span records is the tracer adapters' matter.
package spanlogger

import (
	"fmt"
	"maps"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// ErrorKey is the field that WithError sets in the recorded lines.
const ErrorKey = "error"

// The levels with which lines are recorded.
const (
	LevelDebug = "debug"
	LevelInfo  = "info"
	LevelWarn  = "warn"
	LevelError = "error"
	LevelFatal = "fatal"
)

// Recorder is a span, as far as lines are concerned. Its implementations are
// pointers, so that they can be compared.
type Recorder interface {
	// Recording is false for a span whose lines nobody will see.
	Recording() bool
	// Record adds a line to the span. It does not keep fields.
	Record(level, msg string, fields log.Fields)
}

// New returns a logger that records each line in span, then passes it on to
// next. If next is the logger of another span, span takes its place: a line
// belongs to the innermost span, not to each of those around it.
func New(next log.Logger, span Recorder) log.Logger {
	if l, ok := next.(logger); ok {
		l.span = span
		return l
	}
	// The lines' origin is one call further up than the call of next.
	return logger{next: log.WithCallerSkip(next, 1), span: span}
}

var (
	_ log.Logger        = logger{}
	_ log.CallerSkipper = logger{}
)

type logger struct {
	next   log.Logger
	span   Recorder
	fields log.Fields // never changed once set
}

func (l logger) print(level string, args []any) {
	if l.span.Recording() {
		l.span.Record(level, fmt.Sprint(args...), l.fields)
	}
}

func (l logger) printf(level, format string, args []any) {
	if l.span.Recording() {
		l.span.Record(level, fmt.Sprintf(format, args...), l.fields)
	}
}

func (l logger) Debug(args ...any) {
	l.print(LevelDebug, args)
	l.next.Debug(args...)
}

func (l logger) Debugf(format string, args ...any) {
	l.printf(LevelDebug, format, args)
	l.next.Debugf(format, args...)
}

func (l logger) Info(args ...any) {
	l.print(LevelInfo, args)
	l.next.Info(args...)
}

func (l logger) Infof(format string, args ...any) {
	l.printf(LevelInfo, format, args)
	l.next.Infof(format, args...)
}

func (l logger) Warn(args ...any) {
	l.print(LevelWarn, args)
	l.next.Warn(args...)
}

func (l logger) Warnf(format string, args ...any) {
	l.printf(LevelWarn, format, args)
	l.next.Warnf(format, args...)
}

func (l logger) Error(args ...any) {
	l.print(LevelError, args)
	l.next.Error(args...)
}

func (l logger) Errorf(format string, args ...any) {
	l.printf(LevelError, format, args)
	l.next.Errorf(format, args...)
}

func (l logger) Fatal(args ...any) {
	l.print(LevelFatal, args)
	l.next.Fatal(args...)
}

func (l logger) Fatalf(format string, args ...any) {
	l.printf(LevelFatal, format, args)
	l.next.Fatalf(format, args...)
}

func (l logger) WithField(key string, value any) log.Logger {
	return l.with(l.next.WithField(key, value), log.Fields{key: value})
}

func (l logger) WithFields(fields log.Fields) log.Logger {
	return l.with(l.next.WithFields(fields), fields)
}

func (l logger) WithError(err error) log.Logger {
	return l.with(l.next.WithError(err), log.Fields{ErrorKey: err})
}

// WithCallerSkip implements log.CallerSkipper.
func (l logger) WithCallerSkip(calls int) log.Logger {
	l.next = log.WithCallerSkip(l.next, calls)
	return l
}

func (l logger) with(next log.Logger, fields log.Fields) log.Logger {
	merged := make(log.Fields, len(l.fields)+len(fields))
	maps.Copy(merged, l.fields)
	maps.Copy(merged, fields)
	return logger{next: next, span: l.span, fields: merged}
}
