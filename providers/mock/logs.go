package mock

import (
	"context"
	"io"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// GetContainerLogs returns lines about what has happened to the container. To
// follow them ends with the run of the container, or with ctx.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	h, err := p.get(namespace, podName)
	if err != nil {
		return nil, err
	}
	c, err := h.container(containerName)
	if err != nil {
		return nil, err
	}
	run := h.instance(c.kind, c.name)
	if opts.Previous {
		if c.kind != kindInit && c.kind != kindEphemeral && h.stage == stageBackOff {
			// The run that has exited is the previous one already.
		} else if last := h.lastInstance(c.kind); last != nil {
			run = *last
		} else {
			return nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", c.name, podName)
		}
	}
	if run.started.IsZero() {
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start: ContainerCreating", c.name, podName)
	}
	return api.NewLogReader(ctx, opts, func(_ context.Context, since time.Time) ([]api.LogLine, error) {
		return p.logLines(h, c.kind, c.name, &run, since, opts.Follow)
	}), nil
}

// logLines returns what a run of a container has written since a time, and io.EOF if that is
// all.
func (p *Provider) logLines(h *held, k kind, container string, run *instance, since time.Time, follow bool) ([]api.LogLine, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch current, last := h.instance(k, container), h.lastInstance(k); {
	case current.started.Equal(run.started):
		*run = current
	case last != nil && last.started.Equal(run.started):
		*run = *last
	default: // it has ended before the last one, and how is forgotten
		return nil, io.EOF
	}
	lines := h.logLines(container, *run, since, time.Now())
	select {
	case <-p.done:
		return lines, io.EOF
	default:
	}
	if !follow || !run.ended.IsZero() {
		return lines, io.EOF
	}
	return lines, nil
}

// GetContainerLogStream is GetContainerLogs for one of a container's output
// streams. All lines are of "Stdout".
func (p *Provider) GetContainerLogStream(ctx context.Context, namespace, podName, containerName, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	if stream != "Stderr" {
		return p.GetContainerLogs(ctx, namespace, podName, containerName, opts)
	}
	opts.LimitBytes = 0 // what is not read does not count
	log, err := p.GetContainerLogs(ctx, namespace, podName, containerName, opts)
	if err != nil {
		return nil, err
	}
	return silentLog{log}, nil
}

// silentLog ends when another log does, and has no lines.
type silentLog struct{ io.ReadCloser }

func (l silentLog) Read([]byte) (int, error) {
	if _, err := io.Copy(io.Discard, l.ReadCloser); err != nil {
		return 0, err
	}
	return 0, io.EOF
}
