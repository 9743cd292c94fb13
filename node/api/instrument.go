package api

import (
	"fmt"
	"net/http"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// InstrumentHandler gives each request a span, a logger with the request's
// method and path (never its query, which may hold secrets), and a recovery
// from panics, answered with 500. The ResponseWriter that h gets still is an
// http.Flusher and an http.Hijacker, and works with http.ResponseController.
//
// Logger and tracer come from the request's context (see http.Server's
// BaseContext) or else are log.L and trace.T.
func InstrumentHandler(h http.Handler) http.Handler {
	return instrumented{inner: h, HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
		ctx, span := trace.StartSpan(r.Context(), "node.api.InstrumentHandler")
		defer span.End()
		ctx = span.WithFields(ctx, log.Fields{"method": r.Method, "uri": shortURI(r)})
		r = r.WithContext(ctx)

		tracked := track(w)
		defer func() {
			if status := int(tracked.status.Load()); status >= http.StatusInternalServerError {
				span.SetStatus(fmt.Errorf("answered with HTTP status %d", status))
			}
			log.G(ctx).WithField("status", tracked.status.Load()).Debug("handled request")
		}()
		defer recoverPanic(tracked, r)
		h.ServeHTTP(tracked, r)
	}}
}

// instrumented is a handler that lets see what it was made of.
type instrumented struct {
	http.HandlerFunc
	inner http.Handler
}

// Unwrap returns the handler that is instrumented.
func (i instrumented) Unwrap() http.Handler { return i.inner }
