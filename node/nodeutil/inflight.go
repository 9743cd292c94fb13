package nodeutil

import (
	"context"
	"net/http"
	"sync"
)

// inFlight counts the requests that are being answered.
type inFlight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when there is none left; nil while nobody waits
}

func (f *inFlight) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.add(1)
		defer f.add(-1)
		h.ServeHTTP(w, r)
	})
}

func (f *inFlight) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += n
	if f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// wait waits until no request is being answered, or ctx ends.
func (f *inFlight) wait(ctx context.Context) {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	f.idle = idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
