package nomad

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lastlines"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// followInterval is how often a log that is followed is read.
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
	for _, name := range logStreams {
		l.streams = append(l.streams, &taskStream{log: l, name: name})
	}
	if opts.Tail > 0 && !opts.Follow {
		text, err := l.lastLines(ctx)
		return io.NopCloser(bytes.NewReader(text)), err
	}
	first, err := l.streams[0].open(ctx, api.OriginStart, 0) // its error is the caller's
	if err != nil {
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() { // ends with ctx, which ends when the log is closed, or with the log
		_ = writer.CloseWithError(endOf(l.copyTo(ctx, first, writer)))
	}()
	return reader, nil
}

// taskLog is the log of a task.
type taskLog struct {
	b                *backend
	alloc, job, task string
	opts             vkapi.ContainerLogOpts
	streams          []*taskStream
}

// lastLines returns as many of the last lines as are wanted, up to lastlines.MaxBytes.
func (l *taskLog) lastLines(ctx context.Context) ([]byte, error) {
	tail := &lastlines.Writer{Lines: l.opts.Tail}
	for _, s := range l.streams {
		text, err := s.lastLines(ctx, l.opts.Tail)
		if err != nil {
			return nil, err
		}
		_, _ = tail.Write(text) // it has no errors
	}
	return tail.Bytes(), nil
}

// copyTo copies the logs to w, of which first is the beginning. A log that is followed is
// read again until the run of the container has ended: the stream that Nomad has for that
// goes on beyond it.
func (l *taskLog) copyTo(ctx context.Context, first io.ReadCloser, w io.Writer) error {
	out, tail := w, &lastlines.Writer{Lines: l.opts.Tail}
	if l.opts.Tail > 0 {
		out = tail
	}
	run := l.run()
	for {
		goesOn := l.opts.Follow && run >= 0 && l.run() == run // before the read, so that the last lines are not missed
		complete := true
		for _, s := range l.streams {
			err := s.copyTo(ctx, out, first, !goesOn)
			if first = nil; err != nil && !(goesOn && errdefs.IsUnavailable(err)) {
				return err
			}
			complete = complete && err == nil
		}
		if out != w && complete { // else what is missing would follow as a whole
			out = w
			if _, err := w.Write(tail.Bytes()); err != nil {
				return err
			}
		}
		if !goesOn {
			return nil
		}
		if err := periodic.Sleep(ctx, followInterval); err != nil {
			return err
		}
	}
}

// run returns which run of the container executes, or -1.
func (l *taskLog) run() int64 {
	l.b.mu.Lock()
	r := l.b.records[l.job]
	l.b.mu.Unlock()
	if r == nil || r.alloc == nil || r.alloc.ID != l.alloc || r.alloc.ClientStatus == api.AllocClientStatusLost { // whose tasks run for ever
		return -1
	}
	state := r.alloc.TaskStates[l.task]
	if state == nil || state.State != taskRunning {
		return -1
	}
	return int64(state.Restarts) // #nosec G115 -- far below the maximum
}

// endOf returns nil for the error of a log that is gone with its pod.
func endOf(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
