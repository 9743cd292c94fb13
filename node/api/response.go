package api

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// responseWriter remembers what has happened to a response, so that an error
// or a panic is answered only where an answer is still possible.
type responseWriter struct {
	http.ResponseWriter
	status   atomic.Int32
	hijacked atomic.Bool
}

var (
	_ http.Flusher  = (*responseWriter)(nil)
	_ http.Hijacker = (*responseWriter)(nil)
)

// track wraps w, unless it is a responseWriter already.
func track(w http.ResponseWriter) *responseWriter {
	if tracked, ok := w.(*responseWriter); ok {
		return tracked
	}
	return &responseWriter{ResponseWriter: w}
}

// committed reports whether the status line has gone out, or the connection has
// been taken over.
func (w *responseWriter) committed() bool { return w.status.Load() != 0 || w.hijacked.Load() }

// abort ends a response that has begun in such a way that the client sees
// that it is not complete. A hijacked connection is its new owner's.
func (w *responseWriter) abort() {
	if w.hijacked.Load() {
		return
	}
	// What was written has been flushed; the end of the body cannot be any more.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}

func (w *responseWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status.CompareAndSwap(0, int32(status))
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.status.CompareAndSwap(0, http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError is the Flush of http.ResponseController.
func (w *responseWriter) FlushError() error {
	w.status.CompareAndSwap(0, http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked.Store(true)
	}
	return conn, rw, err
}

// Unwrap is what http.ResponseController looks for.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
