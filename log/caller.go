package log

// CallerSkipper is implemented by loggers that write the source line of the
// call with each line, as those of klogv2 and slog can.
type CallerSkipper interface {
	// WithCallerSkip returns a logger that looks for that source line the
	// given number of calls further up.
	WithCallerSkip(calls int) Logger
}

// WithCallerSkip is for loggers that pass their lines on to another: it returns
// logger such that it looks for the source line the given number of calls
// further up. A logger that is no CallerSkipper is returned as it is.
func WithCallerSkip(logger Logger, calls int) Logger {
	if s, ok := logger.(CallerSkipper); ok {
		return s.WithCallerSkip(calls)
	}
	return logger
}
