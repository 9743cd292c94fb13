package podgroup

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	// logPollInterval is how often a log that is followed is read.
	logPollInterval = 2 * time.Second
	// followListAge is the maximum age of a list that says whether the container of such a
	// log runs: the controller lists more often than that.
	followListAge = 10 * time.Second
)

// GetContainerLogs implements nodeutil.Provider.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	streamer, streams := p.backend.(LogStreamer)
	reader, reads := p.backend.(LogReader)
	if !streams && !reads {
		return nil, p.unsupported("logs")
	}
	u, err := p.find(ctx, namespace, podName, "")
	if err != nil {
		return nil, err
	}
	c := u.Container(containerName)
	if c == nil {
		return nil, errdefs.NotFoundf("container %q not found in pod %s/%s", containerName, namespace, podName)
	}
	if opts.Previous && c.Last.State != Terminated {
		return nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", containerName, podName)
	}
	// A container that waits to be started again has the log of its last run.
	if !opts.Previous && !u.Unknown && c.Now.State == Waiting && c.Last.State != Terminated {
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start: %s", containerName, podName, cmp.Or(c.Now.Reason, defaultReason))
	}
	var log io.ReadCloser
	switch l := (&polledLog{p: p, reader: reader, unit: u, container: containerName, opts: opts, run: c.Restarts}); {
	case streams:
		log, err = p.streamLog(ctx, streamer, &u, containerName, opts)
	case opts.Follow && !opts.Previous:
		log = l.follow(ctx)
	default:
		var text string
		text, err = l.read(ctx, opts.Timestamps)
		log = io.NopCloser(strings.NewReader(text))
	}
	if err != nil || opts.LimitBytes <= 0 {
		return log, err
	}
	return limitedLog{io.LimitReader(log, int64(opts.LimitBytes)), log}, nil
}

// limitedLog is a log of limited length.
type limitedLog struct {
	io.Reader
	io.Closer
}

// streamLog opens a log that the service streams. It ends with ctx, the reader or the
// provider.
func (p *Provider) streamLog(ctx context.Context, streamer LogStreamer, u *Unit, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	var stream io.ReadCloser
	err := p.calls.open(ctx, ActionLog, func(ctx context.Context) (err error) {
		stream, err = streamer.StreamLog(ctx, u, container, opts)
		return err
	})
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	return streamedLog{stream, func() { stop(); cancel() }}, nil
}

// streamedLog is a log whose context ends when it is closed.
type streamedLog struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer.
func (l streamedLog) Close() error {
	l.cancel()
	return l.ReadCloser.Close()
}

// polledLog is the log of a container that is read again and again.
type polledLog struct {
	p         *Provider
	reader    LogReader
	unit      Unit
	container string
	opts      api.ContainerLogOpts
	run       int32 // how often the container had been started again
	marks     []mark
	mark
	skipped int // lines with the time of the mark that were skipped in this text
}

// mark is how far a log had been read at some time.
type mark struct {
	since   string // the timestamp of the last line that was returned
	atSince int    // how many lines with it were returned
}

// maxMarks is for how many reads marks are kept: those since a list that is used.
const maxMarks = int(followListAge/logPollInterval) + 2

// read reads the log once.
func (l *polledLog) read(ctx context.Context, timestamps bool) (text string, err error) {
	q := LogQuery{Previous: l.opts.Previous, Timestamps: timestamps}
	switch {
	case l.since != "":
		q.Since = parseTime(l.since)
	case l.opts.SinceSeconds > 0:
		q.Since = time.Now().Add(-time.Duration(l.opts.SinceSeconds) * time.Second)
	default:
		q.Since = l.opts.SinceTime
	}
	if l.since == "" {
		q.Tail = l.opts.Tail
	}
	err = l.p.calls.do(ctx, ActionLog, func(ctx context.Context) (err error) {
		text, err = l.reader.ReadLog(ctx, &l.unit, l.container, q)
		return err
	})
	return text, err
}

// follow returns a reader of the log that ends with the run of the container, ctx, or the
// provider.
func (l *polledLog) follow(ctx context.Context) io.ReadCloser {
	if l.opts.SinceSeconds > 0 { // seconds before now, not before each read
		l.opts.SinceTime, l.opts.SinceSeconds = time.Now().Add(-time.Duration(l.opts.SinceSeconds)*time.Second), 0
	}
	ctx, cancel := context.WithCancel(ctx)
	reader, writer := io.Pipe()
	stop := context.AfterFunc(l.p.ctx, cancel)
	l.p.work.Go(func() { // ends with the reader, ctx or the provider
		defer cancel()
		defer stop()
		err := l.copyTo(ctx, writer)
		if l.p.ctx.Err() != nil {
			err = nil
		}
		_ = writer.CloseWithError(err)
	})
	return streamedLog{reader, cancel}
}

// copyTo writes new lines until the run of the container has ended, as the kubelet does:
// the next run has a log of its own.
func (l *polledLog) copyTo(ctx context.Context, w io.Writer) error {
	for {
		state := l.state(ctx) // before the read, so that the last lines are not missed
		if state == runForgotten {
			return nil
		}
		text, err := l.read(ctx, true)
		_, later := errdefs.RetryAfter(err)
		passes := later || isThrottled(err) || errdefs.IsUnavailable(err)
		if errdefs.IsNotFound(err) || passes && state == runGone {
			return nil
		}
		if err != nil && !passes {
			return err
		}
		if err == nil {
			l.opts.Tail = 0 // all that comes from now on is new, also if there was nothing yet
		}
		if fresh := l.newLines(text); fresh != "" { // an empty write would wait for a reader
			if _, err := io.WriteString(w, fresh); err != nil {
				return err
			}
		}
		if err == nil && state != runGoesOn {
			return nil
		}
		l.marks = append(l.marks, l.mark)
		l.marks = l.marks[max(0, len(l.marks)-maxMarks):]
		delay, _ := errdefs.RetryAfter(err)
		if err := periodic.Sleep(ctx, max(delay, logPollInterval)); err != nil {
			return err
		}
	}
}

// runState is whether the run of a container goes on.
type runState int

const (
	runGoesOn runState = iota // or may go on
	runEnded
	runGone      // with its unit
	runForgotten // there only are the logs of later runs
)

// state returns the state of the run whose log is followed. If another run has begun, the
// next read is for the rest of the log of the one before.
func (l *polledLog) state(ctx context.Context) runState {
	found, ok, err := l.p.units.find(ctx, l.unit.Owner.UID, followListAge, false, false)
	if err != nil {
		return runGoesOn
	}
	if !ok || found.ID != l.unit.ID {
		return runGone
	}
	c := found.Container(l.container)
	switch {
	case c == nil:
		return runGone
	case c.Restarts > l.run+1:
		return runForgotten
	case c.Restarts != l.run && !c.Now.Started.IsZero():
		l.rewind(c.Now.Started)
		return runEnded
	case c.Now.State != Executing:
		return runEnded
	}
	return runGoesOn
}

// rewind makes the next read go on with the log of the previous run, after the last line
// that was certainly of that run: lines since the start of the current run may have been
// returned before a list had it.
func (l *polledLog) rewind(start time.Time) {
	l.opts.Previous = true
	for ; l.since != "" && !parseTime(l.since).Before(start); l.marks = l.marks[:max(0, len(l.marks)-1)] {
		l.mark = mark{}
		if n := len(l.marks); n > 0 {
			l.mark = l.marks[n-1]
		}
	}
}

// newLines returns the lines that were not returned before, with timestamps only if the
// client wants them. Lines are in the order of their timestamps; one without a timestamp
// belongs to the line before it.
func (l *polledLog) newLines(text string) string {
	var b strings.Builder
	l.skipped = 0
	taken := true // whether the line before was
	for line := range strings.Lines(text) {
		stamp, rest, ok := strings.Cut(line, " ")
		if !ok {
			stamp, rest = strings.TrimSuffix(line, "\n"), "\n"
		}
		if parseTime(stamp).IsZero() {
			rest = line
		} else {
			taken = l.accept(stamp)
		}
		if l.opts.Timestamps {
			rest = line
		}
		if taken {
			b.WriteString(rest)
		}
	}
	return b.String()
}

// accept records the timestamp of the next line, and reports whether the line is new.
func (l *polledLog) accept(stamp string) bool {
	at := parseTime(stamp)
	switch {
	case l.since != "" && at.Before(parseTime(l.since)), at.Before(l.opts.SinceTime):
		return false // the service may have rounded
	case stamp == l.since:
		if l.skipped++; l.skipped <= l.atSince {
			return false
		}
		l.atSince++
	default:
		l.since, l.atSince, l.skipped = stamp, 1, 1
	}
	return true
}

// parseTime parses the timestamp of a line; zero if it is none.
func parseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
