package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// reconnectAfter is how long a connection that failed is not tried again.
const reconnectAfter = time.Second

// lazy is a client of a service that may not be up yet. Clients of the CRI check the
// service when they are made; this one makes its client by the first call for which
// the service is there. Once made it stays: it reconnects by itself.
type lazy[T closer] struct {
	connect func(ctx context.Context) (T, error)

	connecting sync.Mutex // one attempt at a time
	mu         sync.Mutex
	service    T
	connected  bool
	closed     bool
	failed     error     // of the last attempt
	tried      time.Time // when it was
}

type closer interface {
	Close(ctx context.Context) error
}

// get returns the client, or an error of class Unavailable while there is none.
func (l *lazy[T]) get(ctx context.Context) (T, error) {
	if service, ok, err := l.current(); ok || err != nil {
		return service, err
	}
	var none T
	if !l.connecting.TryLock() {
		return none, errdefs.AsUnavailable(errors.New("the container runtime is being connected to"))
	}
	defer l.connecting.Unlock()
	if service, ok, err := l.current(); ok || err != nil {
		return service, err
	}
	service, err := l.connect(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed, l.tried = errdefs.AsUnavailable(err), time.Now()
		return none, l.failed
	}
	if l.closed {
		_ = service.Close(ctx)
		return none, errClosed
	}
	l.service, l.connected = service, true
	return service, nil
}

var errClosed = errdefs.AsUnavailable(errors.New("the provider has been closed"))

// current is the client, if there is one, or the error of a recent attempt.
func (l *lazy[T]) current() (service T, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return service, false, errClosed
	case l.connected:
		return l.service, true, nil
	case l.failed != nil && time.Since(l.tried) < reconnectAfter:
		return service, false, l.failed
	}
	return service, false, nil
}

// Close ends the client, if there is one.
func (l *lazy[T]) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if !l.connected {
		return nil
	}
	l.connected = false
	return l.service.Close(ctx)
}

// explained adds to the error of a connection what to do about it.
func explained(what, endpoint string, err error) error {
	return fmt.Errorf("cannot connect to the %s at %s (set \"endpoint\" in the provider's configuration): %w", what, endpoint, err)
}
