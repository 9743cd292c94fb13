// Package log carries the logger in the context, so that each part of the
// program adds its keys (pod, node, method) and none holds a global one.
//
// Lines go to slog.Default() until an application assigns another logger to L at
// start-up (see the packages logrus, klogv2 and slog beside this one), or puts one
// into a context with WithLogger. To drop all lines assign
// FromSlog(slog.New(slog.DiscardHandler)).
package log

import "context"

var (
	// G is short for GetLogger.
	G = GetLogger

	// L is the logger of contexts that carry none. Assign it once at start-up,
	// before anything logs; it is not synchronized. Its default is FromSlog(nil), which
	// logs with slog.Default().
	L = FromSlog(nil)
)

// Logger is what the library logs with. The adapters of this module implement
// it, and any other may.
//
// Implementations are safe for concurrent use. Fatal and Fatalf end the
// process; the library itself never calls them.
type Logger interface {
	Debug(...any)
	Debugf(string, ...any)
	Info(...any)
	Infof(string, ...any)
	Warn(...any)
	Warnf(string, ...any)
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)

	WithField(string, any) Logger
	WithFields(Fields) Logger
	WithError(error) Logger
}

// Fields are the keys and values that WithFields adds to each line.
type Fields map[string]any

type loggerKey struct{}

// WithLogger returns a context that carries logger.
func WithLogger(ctx context.Context, logger Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, logger)
}

// GetLogger returns the logger that ctx carries, or else L.
func GetLogger(ctx context.Context) Logger {
	if logger, ok := ctx.Value(loggerKey{}).(Logger); ok {
		return logger
	}
	return L
}
