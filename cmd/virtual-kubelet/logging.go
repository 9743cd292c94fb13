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
func setUpLogging(o *options, w io.Writer) log.Logger {
	o.level = new(slog.LevelVar)
	o.level.Set(logLevels[o.logLevel])
	handlerOptions := &slog.HandlerOptions{Level: o.level}
	var handler slog.Handler = slog.NewTextHandler(w, handlerOptions)
	if o.logFormat == "json" {
		handler = slog.NewJSONHandler(w, handlerOptions)
	}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(handler), klog.ContextualLogger(true))
	log.L = vkslog.FromSlog(slog.New(handler))
	return log.L
}
