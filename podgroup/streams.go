package podgroup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// unsupported returns the error of what the backend does not have.
func (p *Provider) unsupported(what string) error {
	return fmt.Errorf("%s has no %s: %w", p.opts.Service, what, errors.ErrUnsupported)
}

// running returns the unit of a pod with a container that runs.
func (p *Provider) running(ctx context.Context, namespace, podName, container string) (*Unit, error) {
	found, err := p.find(ctx, namespace, podName, "")
	if err != nil {
		return nil, err
	}
	c := found.Container(container)
	if c == nil {
		return nil, errdefs.NotFoundf("container %q not found in pod %s/%s", container, namespace, podName)
	}
	if c.Now.State != Executing && !found.Unknown { // of an unknown one the service decides
		return nil, errdefs.AsConflict(fmt.Errorf("container %q in pod %q is not running", container, podName))
	}
	return &found, nil
}

// RunInContainer implements nodeutil.Provider.
func (p *Provider) RunInContainer(ctx context.Context, namespace, podName, container string, command []string, attach api.AttachIO) error {
	execer, ok := p.backend.(Execer)
	if !ok {
		return p.unsupported("commands in containers")
	}
	if len(command) == 0 {
		return errdefs.InvalidInput("there is no command to run")
	}
	u, err := p.running(ctx, namespace, podName, container)
	if err != nil {
		return err
	}
	return p.calls.open(ctx, ActionExec, func(ctx context.Context) error { return execer.Exec(ctx, u, container, command, attach) })
}

// AttachToContainer implements nodeutil.Provider.
func (p *Provider) AttachToContainer(ctx context.Context, namespace, podName, container string, attach api.AttachIO) error {
	attacher, ok := p.backend.(Attacher)
	if !ok {
		return p.unsupported("access to the main process of a container")
	}
	u, err := p.running(ctx, namespace, podName, container)
	if err != nil {
		return err
	}
	return p.calls.open(ctx, ActionExec, func(ctx context.Context) error { return attacher.Attach(ctx, u, container, attach) })
}

// PortForward implements nodeutil.Provider.
func (p *Provider) PortForward(ctx context.Context, namespace, podName string, port int32, stream io.ReadWriteCloser) error {
	forwarder, ok := p.backend.(Forwarder)
	if !ok {
		return p.unsupported("access to ports of pods")
	}
	u, err := p.find(ctx, namespace, podName, "")
	if err != nil {
		return err
	}
	return p.calls.open(ctx, ActionExec, func(ctx context.Context) error { return forwarder.Forward(ctx, &u, port, stream) })
}

// Lacks implements nodeutil.Limited: a Provider can do what its Backend can.
func (p *Provider) Lacks(capability string) bool {
	switch capability {
	case "logs":
		return !is[LogReader](p.backend) && !is[LogStreamer](p.backend)
	case "exec":
		return !is[Execer](p.backend)
	case "attach":
		return !is[Attacher](p.backend)
	case "port-forward":
		return !is[Forwarder](p.backend)
	case "stats", "metrics":
		return !is[Meter](p.backend)
	}
	return false
}

func is[T any](b Backend) bool {
	_, ok := b.(T)
	return ok
}

// Sample returns a provider of a backend for nodeutil.Capabilities, and for nothing else:
// what the nodes of a provider can do is to be known without a configuration.
func Sample(b Backend) nodeutil.Provider {
	p := &Provider{backend: b}
	if watcher, ok := b.(Watcher); ok {
		return &watchingProvider{Provider: p, watcher: watcher}
	}
	return p
}
