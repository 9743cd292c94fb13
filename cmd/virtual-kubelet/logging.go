package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

// logLevels are those of --log-level.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// setUpLogging makes everything, the Kubernetes libraries included, log to w in one
// format.
func setUpLogging(level slog.Leveler, format *logFormat, w io.Writer) log.Logger {
	handlerOptions, lines := &slog.HandlerOptions{Level: level}, &logLines{w: w}
	handler := logHandler{slog.NewTextHandler(lines, handlerOptions), slog.NewJSONHandler(lines, handlerOptions), format}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(handler), klog.ContextualLogger(true))
	log.L = vkslog.FromSlog(slog.New(handler))
	return log.L
}

// logFormat is the format of the log, which can be changed while loggers use it.
type logFormat struct{ json atomic.Bool }

// use sets the format: that of --log-format.
func (f *logFormat) use(name string) { f.json.Store(name == "json") }

// logHandler has what a logger was made with in both formats: loggers last as long as their pods.
type logHandler struct {
	text, json slog.Handler
	format     *logFormat
}

var _ slog.Handler = logHandler{}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level) // the level of both is the same
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	if h.format.json.Load() {
		return h.json.Handle(ctx, record)
	}
	return h.text.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.text.WithAttrs(attrs), h.json.WithAttrs(attrs), h.format}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.text.WithGroup(name), h.json.WithGroup(name), h.format}
}

// logLines writes whole lines: a handler does not wait for that of the other format.
type logLines struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(line)
}
