package slurm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// StreamLog implements podgroup.LogStreamer. Each run of a container has a file with the
// time before each line.
func (b *backend) StreamLog(ctx context.Context, u *podgroup.Unit, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	c := u.Container(container)
	run := c.Restarts
	isLast := opts.Previous || c.Now.State == podgroup.Waiting
	if opts.Previous && c.Now.State != podgroup.Waiting {
		run-- // while it waits, its restarts count up to the run before
	}
	lines, ended := "+1", ""
	since := opts.SinceTime
	if opts.SinceSeconds > 0 {
		since = time.Now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	if opts.Tail > 0 { // since drops some of them: what is before is older
		lines = strconv.Itoa(opts.Tail)
	}
	if opts.Follow && !isLast {
		ended = fmt.Sprintf("exit %s %d ", container, run)
	}
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	open, hold := io.Pipe() // the command ends with its input
	l := &logCutter{out: writer, since: since, timestamps: opts.Timestamps}
	go func() { // ends with the command, and that with ctx
		defer cancel()
		err := b.runner.Run(ctx, login.Command{
			Verb: "log", Stdin: open, Stdout: l,
			Args: []string{b.directoryOf(u), fmt.Sprintf("%s/%d", container, run), lines, ended, u.ID},
		})
		if err = classify(podgroup.ActionLog, err); errdefs.IsNotFound(err) {
			err = nil // it was deleted meanwhile
		}
		_ = hold.Close()
		_ = writer.CloseWithError(err)
	}()
	return &logReader{bufio.NewReader(reader), reader, cancel}, nil
}

// logReader stops its command when it is closed.
type logReader struct {
	io.Reader
	pipe   *io.PipeReader
	cancel func()
}

// Close implements io.Closer.
func (l *logReader) Close() error {
	l.cancel()
	return l.pipe.Close()
}

// logCutter drops lines from before a time, and the times before lines.
type logCutter struct {
	out        io.Writer
	since      time.Time
	timestamps bool

	rest    string // of a line that has begun, until its time is known
	within  bool   // a line whose time is known goes on
	dropped bool   // that line is
}

// maxStamp is how long the time before a line is at most.
const maxStamp = 64

// Write implements io.Writer. It keeps no line: a container may write one that does not end.
func (l *logCutter) Write(p []byte) (int, error) {
	text := l.rest + string(p)
	l.rest = ""
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !l.within {
			stamp, content, found := strings.Cut(line, " ")
			if !found && !strings.HasSuffix(line, "\n") && len(line) < maxStamp {
				l.rest = line
				break
			}
			at, err := time.Parse(time.RFC3339, stamp)
			if l.dropped = err == nil && at.Before(l.since); err == nil && !l.timestamps {
				line = content
			}
		}
		if !l.dropped {
			out.WriteString(line)
		}
		l.within = !strings.HasSuffix(line, "\n")
	}
	if out.Len() > 0 { // an empty write would wait for a reader
		if _, err := io.WriteString(l.out, out.String()); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
