package nodeutil

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Run runs the fleet until ctx ends; then all nodes end as those of Node.Run do, for the
// same cause, and it returns nil. An error is about what the nodes have in common, such as
// the port. What is wrong with one node is logged, and Node.Err if it has
// ended for it. It can be called once.
func (f *Fleet) Run(ctx context.Context) error {
	f.mu.Lock()
	again := f.started
	f.started = true
	f.mu.Unlock()
	if again {
		return errors.New("the fleet was started before: make a new one to run it again")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if f.cfg.Auth != nil && !f.cfg.PortPerNode {
		config := f.cfg.TLSConfig.Clone()
		f.shared.metrics.serving.of(config)
		listener, err := listenTLS(ctx, f.cfg.HTTPListenAddr, config)
		if err != nil {
			return err
		}
		f.port = func(n *Node) { n.setPort(listener) }
		group.Go(func() error { return serve(ctx, listener, f) })
	}
	// A node that is added meanwhile joins before the watch of the pods runs, or as one of a fleet that runs.
	f.mu.Lock()
	defer f.shared.start(ctx, group)()
	group.Go(func() error { f.watch.run(ctx); return nil })

	nodes, endAll := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endAll(nil)
	f.running = nodes
	for _, m := range f.nodes {
		if m.node != nil && m.cancel == nil {
			f.start(m)
		}
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.endNodes(context.Cause(ctx), endAll)
	return group.Wait()
}

// endTimeout is what all nodes together are given to end some at a time, before those
// that are left end at once.
const endTimeout = 10 * time.Second

// endNodes ends the nodes some at a time: of a thousand last writes at once many
// would come too late. Where another process goes on there are none, and all end at once.
func (f *Fleet) endNodes(cause error, all context.CancelCauseFunc) {
	if errors.Is(cause, node.ErrHandedOver) {
		all(cause)
	}
	defer time.AfterFunc(endTimeout, func() { all(cause) }).Stop()
	f.mu.Lock()
	f.ended = true
	var members []*member
	for _, m := range f.nodes {
		if m.cancel != nil {
			members = append(members, m)
		}
	}
	f.mu.Unlock()
	var ending errgroup.Group
	ending.SetLimit(cap(f.shared.registering))
	for _, m := range members {
		ending.Go(func() error {
			m.cancel(cause)
			<-m.node.done
			return nil
		})
	}
	_ = ending.Wait() // nothing returns an error
	f.members.Wait()
}

// start runs a node. f.mu is held.
func (f *Fleet) start(m *member) {
	ctx, cancel := context.WithCancelCause(m.node.logging(f.running))
	m.cancel = cancel
	f.members.Go(func() {
		defer cancel(nil)
		err := f.keep(ctx, m)
		if err != nil {
			log.G(ctx).WithError(err).Error("A node of the fleet has failed; the others go on")
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		m.ended = true
		if m.removing {
			f.release(m.node.cfg.NodeSpec.Name, m)
		}
		m.node.end(err)
	})
}

// keep runs a node until ctx ends.
func (f *Fleet) keep(ctx context.Context, m *member) error {
	n := m.node
	group, ctx := errgroup.WithContext(ctx)
	switch {
	case f.port != nil:
		f.port(n)
	case n.cfg.Handler != nil:
		var listener net.Listener
		err := insist(ctx, "Cannot serve the node's kubelet API", func() (err error) {
			listener, err = n.listen(ctx)
			return err
		})
		if err != nil {
			return nil
		}
		n.startServing(ctx, group, listener)
	}
	if !m.joined {
		join := func() error { return f.shared.pods.Join(ctx, n.cfg.NodeSpec.Name, n.known) }
		if insist(ctx, "Cannot read the node's pods", join) != nil {
			return group.Wait()
		}
	}
	if err := n.control(ctx); err != nil {
		group.Go(func() error { return err }) // has the server end
	}
	return group.Wait()
}

// insist does something until it works; the error is that ctx has ended before.
func insist(ctx context.Context, problem string, do func() error) error {
	backoff := periodic.Backoff(time.Minute)
	for {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		delay := backoff.Step()
		log.G(ctx).WithError(err).WithField("delay", delay.Round(time.Millisecond).String()).Error(problem + "; trying again until it works")
		if err := periodic.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}
