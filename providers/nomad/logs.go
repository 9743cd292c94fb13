package nomad

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strconv"
	"time"

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
	first, err := l.open(ctx, logStreams[0], 0) // its error is the caller's
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
}

// open requests one of the logs, from an offset on.
func (l *taskLog) open(ctx context.Context, stream string, offset int64) (io.ReadCloser, error) {
	q := url.Values{"task": {l.task}, "type": {stream}, "origin": {"start"}, "offset": {strconv.FormatInt(offset, 10)}, "plain": {"true"}}
	body, err := l.b.api.Raw().Response("/v1/client/fs/logs/"+url.PathEscape(l.alloc)+"?"+q.Encode(), query(ctx))
	return body, classify(podgroup.ActionLog, err)
}

// copyTo copies the logs to w, of which first is the beginning. A log that is followed is
// read again until the run of the container has ended: the stream that Nomad has for that
// goes on beyond it.
func (l *taskLog) copyTo(ctx context.Context, first io.ReadCloser, w io.Writer) error {
	out, tail := w, &lastlines.Writer{Lines: l.opts.Tail}
	if l.opts.Tail > 0 {
		out = tail
	}
	offsets, run := make([]int64, len(logStreams)), l.run()
	for {
		goesOn := l.opts.Follow && run >= 0 && l.run() == run // before the read, so that the last lines are not missed
		for i, stream := range logStreams {
			body, err := first, error(nil)
			if first = nil; body == nil {
				body, err = l.open(ctx, stream, offsets[i])
			}
			if err == nil {
				var n int64
				n, err = copyLines(out, body, !goesOn)
				offsets[i] += n
			}
			if err != nil && !(goesOn && errdefs.IsUnavailable(err)) {
				return err
			}
		}
		if out != w {
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
	if r == nil || r.alloc == nil || r.alloc.ID != l.alloc {
		return -1
	}
	state := r.alloc.TaskStates[l.task]
	if state == nil || state.State != taskRunning {
		return -1
	}
	return int64(state.Restarts) // #nosec G115 -- far below the maximum
}

// copyLines copies whole lines of a log, and what follows the last of them only if it is
// complete. It returns how many bytes it has written.
func copyLines(w io.Writer, log io.ReadCloser, isComplete bool) (written int64, err error) {
	defer log.Close()
	var rest []byte
	buf := make([]byte, 32<<10)
	for {
		n, end := log.Read(buf)
		rest = append(rest, buf[:n]...)
		whole := bytes.LastIndexByte(rest, '\n') + 1
		if end != nil && isComplete || len(rest) > len(buf) {
			whole = len(rest)
		}
		if whole > 0 { // an empty write would wait for a reader
			n, err := w.Write(rest[:whole])
			if written += int64(n); err != nil {
				return written, err
			}
		}
		rest = append(rest[:0], rest[whole:]...)
		if end == io.EOF {
			return written, nil
		}
		if end != nil {
			return written, errdefs.AsUnavailable(end)
		}
	}
}

// endOf returns nil for the error of a log that is gone with its pod.
func endOf(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
