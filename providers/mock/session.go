package mock

import (
	"context"
	"errors"
	"fmt"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// session is the time for which a client is connected to a running container.
type session struct {
	p         *Provider
	h         *held
	container string
	kind      kind
	started   time.Time // which run of the container it is
}

// session begins one. The container has to be running.
func (p *Provider) session(namespace, pod, container string) (*session, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	h, err := p.get(namespace, pod)
	if err != nil {
		return nil, err
	}
	c, err := h.container(container)
	if err != nil {
		return nil, err
	}
	run := h.instance(c.kind, c.name)
	if !run.running() {
		return nil, errdefs.AsConflict(fmt.Errorf("container %q in pod %q is not running", c.name, pod))
	}
	return &session{p: p, h: h, container: c.name, kind: c.kind, started: run.started}, nil
}

// stopped waits until the container has stopped (then it returns its exit code),
// or ctx ends.
func (s *session) stopped(ctx context.Context) (code int32, err error) {
	for {
		s.p.mu.Lock()
		if s.h.changed == nil {
			s.h.changed = make(chan struct{})
		}
		run, changed := s.h.instance(s.kind, s.container), s.h.changed
		s.p.mu.Unlock()
		if !run.running() || !run.started.Equal(s.started) {
			return run.code, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.p.done:
			return 0, errClosed
		}
	}
}

// run runs f, which copies streams, until it returns, ctx ends or the container
// stops. Since nothing can interrupt a Read of the client's, f may then still be
// in it: its goroutine ends with the streams, which are closed when the caller
// returns.
func (s *session) run(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- f(ctx) }() // ends with the streams
	stopped := make(chan error, 1)
	go func() { // ends with ctx
		_, err := s.stopped(ctx)
		if err == nil {
			err = exitError(exitCodeKilled)
		}
		stopped <- err
	}()
	select {
	case err := <-returned:
		return err
	case err := <-stopped:
		return err
	}
}

// exitError returns an error with the exit code of a command, nil for 0.
func exitError(code int) error {
	if code == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
}

var errNoCommand = errdefs.AsInvalidInput(errors.New("there is no command to run"))
