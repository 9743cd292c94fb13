package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// logLinesInterval is how often the lines of a log that is followed are asked for, unless
	// there are older ones to come.
	logLinesInterval = time.Second
	// logTimestamp is the kubelet's format of the time before a line.
	logTimestamp = "2006-01-02T15:04:05.000000000Z07:00"
)

// LogLine is a line of a log.
type LogLine struct {
	Time time.Time // zero means that of the line before it; in a log without times, that it is not known
	Text string    // with its newline or without
}

// LogLinesFunc returns the lines of a log that were written at a time or later, oldest
// first, and all for the zero time. It may return the first of them only, if there are new
// ones among these, and earlier ones. No new line means that there is none for now; io.EOF
// that there will be no more than those that it returns.
type LogLinesFunc func(ctx context.Context, since time.Time) ([]LogLine, error)

// NewLogReader returns what a ContainerLogsHandlerFunc does, for a provider whose backend has
// the lines of a log and their times: it applies all of opts but Previous. The lines are
// asked for when the reader is read, from the last one that is known on, and if the log is
// followed every second until io.EOF, which lines returns once the container has ended. One
// that is not followed ends with the first lines that are newer than the reader, so that a
// container that goes on writing does not keep it from that. The reader ends with ctx, and
// when it is closed. HandleContainerLogs answers with the status of an error that comes in place of
// the first lines, where a handler function returns the reader as it is.
func NewLogReader(ctx context.Context, opts ContainerLogOpts, lines LogLinesFunc) io.ReadCloser {
	l := &lineReader{lines: lines, opts: opts, begun: time.Now(), since: opts.SinceTime}
	if opts.SinceSeconds > 0 {
		l.since = time.Now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// lineReader is the reader of NewLogReader. All but its context belongs to Read.
type lineReader struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	lines  LogLinesFunc
	opts   ContainerLogOpts
	begun  time.Time // when the reader was made

	since time.Time // of the newest line that was accepted
	same  int       // how many lines of that time were
	tail  []string  // the last lines, until all were read that there are at first
	pause bool      // there are no more lines for now
	read  int       // bytes
	out   bytes.Buffer
	err   error // when out is empty
}

// Read implements io.Reader.
func (l *lineReader) Read(p []byte) (int, error) {
	for {
		if l.ctx.Err() != nil {
			return 0, context.Cause(l.ctx)
		}
		if limit := l.opts.LimitBytes; limit > 0 && l.read+l.out.Len() >= limit {
			l.out.Truncate(limit - l.read)
			l.err = io.EOF
		}
		if l.out.Len() > 0 || len(p) == 0 {
			n, _ := l.out.Read(p)
			l.read += n
			return n, nil
		}
		if l.err != nil {
			return 0, l.err
		}
		l.fill()
	}
}

// begin asks for the first lines, before the first Read, and returns the error that comes in place
// of them.
func (l *lineReader) begin() error {
	l.fill()
	if l.out.Len() > 0 || errors.Is(l.err, io.EOF) {
		return nil
	}
	return l.err
}

// Close implements io.Closer. A Read that waits returns.
func (l *lineReader) Close() error {
	l.cancel(io.ErrClosedPipe)
	return nil
}

// fill asks for lines once, a while after there were no more.
func (l *lineReader) fill() {
	if l.pause {
		timer := time.NewTimer(logLinesInterval)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return
		}
	}
	asked := time.Now()
	lines, err := l.lines(l.ctx, l.since)
	if !l.since.IsZero() && len(lines) > 0 && !haveTimes(lines) {
		// Lines of an older one, or of a log without times: there are too many of these rather than none.
		if whole, wholeErr := l.lines(l.ctx, time.Time{}); !haveTimes(whole) {
			l.since, lines, err = time.Time{}, whole, wholeErr
		}
	}
	fresh := l.fresh(lines)
	l.err = err
	all := len(fresh) == 0 || l.since.IsZero() // lines without times do not come in parts
	reached := all || l.since.After(l.begun)   // all lines that there were at first
	l.pause = all || reached && l.since.After(asked.Add(-logLinesInterval))
	if reached && !l.opts.Follow && err == nil {
		l.err = io.EOF
	}
	if l.opts.Tail > 0 {
		l.tail = append(l.tail, fresh...)
		l.tail = l.tail[max(0, len(l.tail)-l.opts.Tail):]
		if !reached && l.err == nil {
			return
		}
		fresh, l.tail, l.opts.Tail = l.tail, nil, 0
	}
	for _, line := range fresh {
		l.out.WriteString(line)
	}
}

func haveTimes(lines []LogLine) bool {
	return slices.ContainsFunc(lines, func(line LogLine) bool { return !line.Time.IsZero() })
}

// fresh returns the lines that were not accepted before, as the client wants them. Lines of
// one answer need not be in the order of their times, as those of two streams may not be.
func (l *lineReader) fresh(lines []LogLine) (fresh []string) {
	var at time.Time
	newest, same, known := l.since, l.same, 0
	for _, line := range lines {
		if !line.Time.IsZero() {
			at = line.Time
		}
		if at.Before(l.since) {
			continue
		}
		if at.Equal(l.since) {
			if known++; known <= l.same {
				continue
			}
		}
		switch {
		case at.After(newest):
			newest, same = at, 1
		case at.Equal(newest):
			same++
		}
		text := strings.TrimSuffix(line.Text, "\n") + "\n"
		if l.opts.Timestamps {
			text = at.UTC().Format(logTimestamp) + " " + text
		}
		fresh = append(fresh, text)
	}
	l.since, l.same = newest, same
	return fresh
}
