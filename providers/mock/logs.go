package mock

import (
	"context"
	"io"
	"sync"
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
	c, k, err := h.container(containerName)
	if err != nil {
		return nil, err
	}
	run := h.instance(k, c.Name)
	if opts.Previous {
		if k != kindInit && k != kindEphemeral && h.stage == stageBackOff {
			// The run that has exited is the previous one already.
		} else if last := h.lastInstance(k); last != nil {
			run = *last
		} else {
			return nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", c.Name, podName)
		}
	}
	if run.started.IsZero() {
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start: ContainerCreating", c.Name, podName)
	}
	r := &logReader{
		p: p, h: h, ctx: ctx, opts: opts,
		container: c.Name, kind: k, run: run, tail: opts.Tail,
		closed: make(chan struct{}),
	}
	now := time.Now()
	if opts.SinceSeconds > 0 {
		r.since = now.Add(-time.Duration(opts.SinceSeconds) * time.Second)
	} else {
		r.since = opts.SinceTime
	}
	return r, nil
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

// logReader reads the log of one run of a container. It has no goroutine: Read
// waits for lines to come.
type logReader struct {
	p         *Provider
	h         *held
	ctx       context.Context // of the request, which is as long as the reader lives
	opts      api.ContainerLogOpts
	container string
	kind      kind
	run       instance
	since     time.Time
	closed    chan struct{}
	closeOnce sync.Once

	// The rest belongs to Read.
	tail   int       // lines from the end to begin with, 0 for all
	last   time.Time // of the last line that was taken
	same   int       // how many lines of that time were taken
	read   int       // bytes
	buffer []byte
	ended  bool
}

// Read implements io.Reader.
func (r *logReader) Read(b []byte) (int, error) {
	for len(r.buffer) == 0 {
		select {
		case <-r.closed:
			return 0, io.ErrClosedPipe
		default:
		}
		if r.ended || r.opts.LimitBytes > 0 && r.read >= r.opts.LimitBytes {
			return 0, io.EOF
		}
		changed, next := r.fill()
		if len(r.buffer) > 0 || r.ended {
			continue
		}
		if !r.wait(changed, next) {
			r.ended = true
		}
	}
	if left := r.opts.LimitBytes - r.read; r.opts.LimitBytes > 0 && len(b) > left {
		b = b[:left]
	}
	n := copy(b, r.buffer)
	r.buffer = r.buffer[n:]
	r.read += n
	if r.opts.LimitBytes > 0 && r.read >= r.opts.LimitBytes {
		r.buffer, r.ended = nil, true
	}
	return n, nil
}

// fill takes the lines that are new. It returns what to wait for if there are
// none: a change of the pod, or the time of the next line.
func (r *logReader) fill() (changed <-chan struct{}, next time.Time) {
	now := time.Now()
	r.p.mu.RLock()
	if current := r.h.instance(r.kind, r.container); current.started.Equal(r.run.started) {
		r.run = current
	}
	lines := r.h.logLines(r.container, r.run, now)
	changed = r.h.changed
	r.p.mu.RUnlock()

	r.ended = !r.opts.Follow || !r.run.ended.IsZero()
	fresh := r.fresh(lines)
	if r.tail > 0 && len(fresh) > r.tail {
		fresh = fresh[len(fresh)-r.tail:]
	}
	r.tail = 0 // it is about where to begin
	for _, line := range fresh {
		if r.opts.Timestamps {
			r.buffer = append(line.at.UTC().AppendFormat(r.buffer, time.RFC3339Nano), ' ')
		}
		r.buffer = append(append(r.buffer, line.text...), '\n')
	}
	return changed, nextLogLine(r.run, now)
}

// fresh returns those lines that were not taken before and that are wanted.
// Lines are only ever added at the end, and their times do not decrease.
func (r *logReader) fresh(lines []logLine) []logLine {
	same := 0
	var fresh []logLine
	for _, line := range lines {
		if line.at.Before(r.last) {
			continue
		}
		if line.at.Equal(r.last) {
			if same++; same <= r.same {
				continue
			}
		} else {
			same = 1
		}
		r.last, r.same = line.at, same
		if !line.at.Before(r.since) {
			fresh = append(fresh, line)
		}
	}
	return fresh
}

// wait waits for the pod to change or for the given time. It returns false if
// there is no more to come.
func (r *logReader) wait(changed <-chan struct{}, next time.Time) bool {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-r.closed:
	case <-r.ctx.Done():
		return false
	case <-r.p.done:
		return false
	}
	return true
}

// Close implements io.Closer. A Read that waits returns.
func (r *logReader) Close() error {
	r.closeOnce.Do(func() { close(r.closed) })
	return nil
}
