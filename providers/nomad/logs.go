package nomad

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// followInterval is how often a log that is followed is checked for its end: Nomad goes on
// waiting for lines of a task that has ended.
const followInterval = time.Second

// logStreams are the two logs of a task, which Nomad keeps apart, without times.
var logStreams = []string{"stdout", "stderr"}

// StreamLog implements podgroup.LogStreamer: what was written to stdout, then what was
// written to stderr, then lines of both as they come.
func (b *backend) StreamLog(ctx context.Context, u *podgroup.Unit, container string, opts vkapi.ContainerLogOpts) (io.ReadCloser, error) {
	switch {
	case opts.Timestamps || opts.SinceSeconds > 0 || !opts.SinceTime.IsZero():
		return nil, errdefs.InvalidInput("Nomad does not record the times of lines: leave out --timestamps and --since")
	case opts.Previous:
		return nil, errdefs.InvalidInput("Nomad keeps one log of all runs of a container: leave out --previous")
	}
	ref, ok := u.Data.(allocRef)
	if !ok {
		return nil, errdefs.NotFoundf("job %s has no allocation, and no log, yet", u.ID)
	}
	l := &taskLog{b: b, alloc: ref.id, job: u.ID, task: container, opts: opts}
	first, err := l.open(ctx, logStreams[0], 0, false) // its error is the caller's
	if err != nil {
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() { // ends with ctx, which ends when the log is closed, or with the log
		_ = writer.CloseWithError(l.copyTo(ctx, first, writer))
	}()
	return reader, nil
}

// taskLog is the log of a task.
type taskLog struct {
	b                *backend
	alloc, job, task string
	opts             vkapi.ContainerLogOpts

	mu  sync.Mutex // guards writes
	out io.Writer
}

// open requests one of the logs, from an offset on.
func (l *taskLog) open(ctx context.Context, stream string, offset int64, follow bool) (io.ReadCloser, error) {
	q := url.Values{
		"task": {l.task}, "type": {stream}, "origin": {"start"}, "offset": {strconv.FormatInt(offset, 10)},
		"follow": {strconv.FormatBool(follow)}, "plain": {"true"},
	}
	body, err := l.b.api.Raw().Response("/v1/client/fs/logs/"+url.PathEscape(l.alloc)+"?"+q.Encode(), query(ctx))
	return body, classify(podgroup.ActionLog, err)
}

// copyTo copies the logs to w, of which first is the beginning.
func (l *taskLog) copyTo(ctx context.Context, first io.ReadCloser, w io.Writer) error {
	if l.opts.LimitBytes > 0 {
		w = &limitedWriter{w, l.opts.LimitBytes}
	}
	l.out = w
	tail := &tailBuffer{lines: l.opts.Tail}
	if l.opts.Tail > 0 {
		l.out = tail
	}
	offsets := make([]int64, len(logStreams))
	for i, stream := range logStreams {
		body := first
		if i > 0 {
			var err error
			if body, err = l.open(ctx, stream, 0, false); err != nil {
				return err
			}
		}
		n, err := l.copyLines(body)
		if offsets[i] = n; err != nil {
			return endOf(err)
		}
	}
	if l.opts.Tail > 0 {
		l.out = w
		if _, err := w.Write(tail.last()); err != nil {
			return endOf(err)
		}
	}
	if !l.opts.Follow {
		return nil
	}
	return l.follow(ctx, offsets)
}

// follow copies new lines until the run of the container has ended.
func (l *taskLog) follow(ctx context.Context, offsets []int64) error {
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	run := l.run()
	var copying sync.WaitGroup
	errs := make([]error, len(logStreams))
	for i, stream := range logStreams {
		copying.Go(func() {
			for live.Err() == nil && errs[i] == nil { // Nomad may end a stream that goes on
				body, err := l.open(live, stream, offsets[i], true)
				if err == nil {
					var n int64
					n, err = l.copyLines(body)
					offsets[i] += n
				}
				if err = endOf(err); err != nil && live.Err() == nil && !errdefs.IsUnavailable(err) {
					errs[i] = err
					cancel()
				}
				_ = sleep(live, followInterval)
			}
		})
	}
	for run >= 0 && l.run() == run && sleep(live, followInterval) == nil {
	}
	cancel()
	copying.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i, stream := range logStreams { // the last lines
		body, err := l.open(ctx, stream, offsets[i], false)
		if errdefs.IsNotFound(err) {
			continue // with the pod
		}
		if err != nil {
			return err
		}
		if _, err := l.copyLines(body); err != nil {
			return endOf(err)
		}
	}
	return nil
}

// run returns which run of the container executes, or -1.
func (l *taskLog) run() int64 {
	l.b.mu.Lock()
	r := l.b.records[l.job]
	l.b.mu.Unlock()
	if r == nil || r.alloc == nil || r.alloc.ID != l.alloc {
		return -1
	}
	state := r.alloc.TaskStates[l.task]
	if state == nil || state.State != taskRunning {
		return -1
	}
	return int64(state.Restarts) // #nosec G115 -- far below the maximum
}

// copyLines copies a log, in whole lines where it has them, and returns how many bytes it
// has written.
func (l *taskLog) copyLines(body io.ReadCloser) (written int64, err error) {
	defer body.Close()
	var rest []byte
	write := func(text []byte) error {
		if len(text) == 0 {
			return nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		n, err := l.out.Write(text)
		written += int64(n)
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		rest = append(rest, buf[:n]...)
		whole := bytes.LastIndexByte(rest, '\n') + 1
		if err != nil || len(rest) > len(buf) {
			whole = len(rest)
		}
		if err := write(rest[:whole]); err != nil {
			return written, err
		}
		rest = append(rest[:0], rest[whole:]...)
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, errdefs.AsUnavailable(err)
		}
	}
}

// tailBuffer keeps the last lines.
type tailBuffer struct {
	lines int
	text  []byte
}

// Write implements io.Writer.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > 1<<20 {
		t.text = append([]byte(nil), t.last()...)
	}
	return len(p), nil
}

// last returns the last lines.
func (t *tailBuffer) last() []byte {
	at := len(bytes.TrimSuffix(t.text, []byte("\n")))
	for range t.lines {
		at = bytes.LastIndexByte(t.text[:at], '\n')
		if at < 0 {
			return t.text
		}
	}
	return t.text[at+1:]
}

// limitedWriter ends a log after a number of bytes.
type limitedWriter struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (l *limitedWriter) Write(p []byte) (int, error) {
	n, err := l.w.Write(p[:min(l.left, len(p))])
	if l.left -= n; err == nil && l.left == 0 {
		err = io.EOF
	}
	return n, err
}

// endOf returns nil for the error that ends a log.
func endOf(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
