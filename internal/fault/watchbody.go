package fault

import (
	"io"
	"sync"
	"time"
)

// watchBody is the answer to a watch, which may stall and may end early.
type watchBody struct {
	inner  io.ReadCloser
	forget func(*watchBody)
	ended  chan struct{}

	mu      sync.Mutex
	silent  bool
	dropped bool
	closed  bool
	timer   *time.Timer
}

func newWatchBody(inner io.ReadCloser, forget func(*watchBody)) *watchBody {
	return &watchBody{inner: inner, forget: forget, ended: make(chan struct{})}
}

// Read returns nothing of what has come since the watch stalled.
func (w *watchBody) Read(b []byte) (int, error) {
	n, err := w.inner.Read(b)
	w.mu.Lock()
	silent, dropped := w.silent, w.dropped
	w.mu.Unlock()
	if silent && !dropped {
		<-w.ended
	}
	if silent || dropped {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (w *watchBody) Close() error {
	w.forget(w)
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
	}
	first := !w.closed && !w.dropped
	w.closed = true
	w.mu.Unlock()
	if first {
		close(w.ended)
	}
	return w.inner.Close()
}

// end has the watch end after d, and say nothing until then if it is to stall.
func (w *watchBody) end(d time.Duration, stall bool) {
	w.mu.Lock()
	w.silent = w.silent || stall
	w.timer = time.AfterFunc(d, w.drop)
	w.mu.Unlock()
}

func (w *watchBody) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
}

func (w *watchBody) stalled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

// drop ends the watch, also in the midst of a Read.
func (w *watchBody) drop() {
	w.mu.Lock()
	first := !w.closed && !w.dropped
	w.dropped = true
	w.mu.Unlock()
	if first {
		close(w.ended)
		_ = w.inner.Close()
	}
}
