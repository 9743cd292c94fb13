package main

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

// logLevels are those of --log-level.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// setUpLogging makes everything, the Kubernetes libraries included, log to w in one
// format.
func setUpLogging(level slog.Leveler, format string, w io.Writer) log.Logger {
	handlerOptions := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, handlerOptions)
	if format == "json" {
		handler = slog.NewJSONHandler(w, handlerOptions)
	}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(handler), klog.ContextualLogger(true))
	log.L = vkslog.FromSlog(slog.New(handler))
	return log.L
}
