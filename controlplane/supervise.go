package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
)

const (
	// stopTimeout is how long a component may take to end by itself.
	stopTimeout = 5 * time.Second
	// readyTimeout is how long one component may take until it is ready.
	readyTimeout = 90 * time.Second
)

// supervisor runs the components in order and stops them in reverse.
type supervisor struct {
	executable string
	dir        string
	components []*component // in the order of start
	progress   func(format string, args ...any)

	spawner *spawner
	died    func(error)
	ops     sync.Mutex // one start, stop or restart at a time
}

// run starts everything, calls ready, and supervises until the context is
// cancelled, which is no error, or a component ends by itself, which is one.
// Nothing runs any more when it returns.
func (s *supervisor) run(ctx context.Context, client kubernetes.Interface, ready func() error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.spawner, s.died = newSpawner(), fail
	defer s.spawner.close()
	defer s.stopAll()

	if err := s.startAll(ctx, client); err != nil {
		return outcome(ctx, err)
	}
	if err := ready(); err != nil {
		return err
	}
	err := serveControl(ctx, s)
	return outcome(ctx, err)
}

// outcome prefers the reason of the end to the errors that followed from it.
func outcome(ctx context.Context, err error) error {
	if died, ok := errors.AsType[*diedError](context.Cause(ctx)); ok {
		return died
	}
	if ctx.Err() != nil {
		return nil // stopped
	}
	return err
}

// startAll starts etcd, then the API server, then the rest side by side.
func (s *supervisor) startAll(ctx context.Context, client kubernetes.Interface) error {
	const sequential = 2
	for _, c := range s.components[:sequential] {
		if err := s.startReady(ctx, c); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range s.components[sequential:] {
		g.Go(func() error { return s.startReady(ctx, c) })
	}
	g.Go(func() error { return createBindings(ctx, client) })
	g.Go(func() error { return defaultServiceAccountReady(ctx, client) })
	return g.Wait()
}

func (s *supervisor) startReady(ctx context.Context, c *component) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	begin := time.Now()
	if err := c.start(s.spawner, s.executable, s.dir, s.died); err != nil {
		return err
	}
	if err := c.ready(ctx); err != nil {
		return fmt.Errorf("%s does not get ready: %w; the last lines of %s:\n%s", c.name, err, c.log, tail(c.log, 20))
	}
	s.progress("%s is ready after %.1fs", c.name, time.Since(begin).Seconds())
	return nil
}

func (s *supervisor) stopAll() {
	for i := len(s.components) - 1; i >= 0; i-- {
		s.components[i].stop(syscall.SIGTERM, stopTimeout)
	}
}

// control does one of start, stop and restart to one component. Stop is
// SIGKILL: what it stands for is an outage.
func (s *supervisor) control(ctx context.Context, action, name string) error {
	c := s.component(name)
	if c == nil {
		return fmt.Errorf("there is no component %q", name)
	}
	s.ops.Lock()
	defer s.ops.Unlock()
	if action == actionStop || action == actionRestart {
		if c.stop(syscall.SIGKILL, stopTimeout) {
			s.progress("%s was killed on request", name)
		}
	}
	if action == actionStart || action == actionRestart {
		return s.startReady(ctx, c)
	}
	return nil
}

func (s *supervisor) component(name string) *component {
	for _, c := range s.components {
		if c.name == name {
			return c
		}
	}
	return nil
}
