package log

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// LevelFatal is the level of Fatal and Fatalf of a logger from FromSlog, above
// slog.LevelError.
const LevelFatal = slog.Level(12)

var (
	_ Logger        = slogLogger{}
	_ CallerSkipper = slogLogger{}
)

type slogLogger struct {
	logger *slog.Logger // nil means slog.Default() at the time of the line
	fields *fields      // nil means none
	skip   int
}

// fields are kept for the lines that are written: a handler renders at once what
// it is given for all lines, and most loggers never write one.
type fields struct {
	before *fields
	attrs  []slog.Attr
}

// addTo adds the fields, each name once: of several with one name the last counts, since many
// readers of JSON refuse others, or take the first.
func (f *fields) addTo(record *slog.Record) {
	var room [16]slog.Attr
	attrs := f.appendTo(room[:0])
	for i, attr := range attrs {
		if !slices.ContainsFunc(attrs[i+1:], func(later slog.Attr) bool { return later.Key == attr.Key }) {
			record.AddAttrs(attr)
		}
	}
}

func (f *fields) appendTo(attrs []slog.Attr) []slog.Attr {
	if f == nil {
		return attrs
	}
	return append(f.before.appendTo(attrs), f.attrs...)
}

// FromSlog returns a logger that logs with logger, its attributes included. Nil
// stands for slog.Default() at the time of each line, so that a program may call
// slog.SetDefault at any time.
func FromSlog(logger *slog.Logger) Logger { return slogLogger{logger: logger} }

func (a slogLogger) slog() *slog.Logger {
	if a.logger == nil {
		return slog.Default()
	}
	return a.logger
}

// DebugEnabled reports whether debug lines are written. What wraps the logger need not make fields for them
// otherwise.
func (a slogLogger) DebugEnabled() bool {
	return a.slog().Enabled(context.Background(), slog.LevelDebug)
}

func (a slogLogger) Debug(args ...any)            { a.print(slog.LevelDebug, args) }
func (a slogLogger) Debugf(f string, args ...any) { a.printf(slog.LevelDebug, f, args) }
func (a slogLogger) Info(args ...any)             { a.print(slog.LevelInfo, args) }
func (a slogLogger) Infof(f string, args ...any)  { a.printf(slog.LevelInfo, f, args) }
func (a slogLogger) Warn(args ...any)             { a.print(slog.LevelWarn, args) }
func (a slogLogger) Warnf(f string, args ...any)  { a.printf(slog.LevelWarn, f, args) }
func (a slogLogger) Error(args ...any)            { a.print(slog.LevelError, args) }
func (a slogLogger) Errorf(f string, args ...any) { a.printf(slog.LevelError, f, args) }

// Fatal logs at LevelFatal and exits with status 1.
func (a slogLogger) Fatal(args ...any) {
	a.print(LevelFatal, args)
	os.Exit(1)
}

// Fatalf logs at LevelFatal and exits with status 1.
func (a slogLogger) Fatalf(f string, args ...any) {
	a.printf(LevelFatal, f, args)
	os.Exit(1)
}

func (a slogLogger) WithField(key string, value any) Logger {
	a.fields = &fields{a.fields, []slog.Attr{slog.Any(key, value)}}
	return a
}

// WithFields adds the fields in the order of their keys.
func (a slogLogger) WithFields(added Fields) Logger {
	attrs := make([]slog.Attr, 0, len(added))
	for key, value := range added {
		attrs = append(attrs, slog.Any(key, value))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	a.fields = &fields{a.fields, attrs}
	return a
}

// WithError adds err as the attribute "error".
func (a slogLogger) WithError(err error) Logger {
	return a.WithField("error", err)
}

// WithCallerSkip implements CallerSkipper.
func (a slogLogger) WithCallerSkip(calls int) Logger {
	a.skip += calls
	return a
}

func (a slogLogger) print(level slog.Level, args []any) {
	if a.slog().Enabled(context.Background(), level) {
		a.handle(level, fmt.Sprint(args...))
	}
}

func (a slogLogger) printf(level slog.Level, format string, args []any) {
	if a.slog().Enabled(context.Background(), level) {
		a.handle(level, fmt.Sprintf(format, args...))
	}
}

// handle bypasses slog.Logger's methods, which would take this file for the
// source of the line.
func (a slogLogger) handle(level slog.Level, msg string) {
	const ours = 4 // runtime.Callers, handle, print or printf, Info and the like
	var pcs [1]uintptr
	runtime.Callers(ours+a.skip, pcs[:])
	record := slog.NewRecord(time.Now(), level, msg, pcs[0])
	a.fields.addTo(&record)
	// As with slog.Logger itself, a handler that fails has nobody to report it to.
	_ = a.slog().Handler().Handle(context.Background(), record)
}
