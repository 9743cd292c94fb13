package azurebatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// pollInterval is how often a log that is followed is read.
	pollInterval = 2 * time.Second
	// maxRange is how much of a file is read by one call.
	maxRange int64 = 1 << 20
	// maxTail is how much of the end of a file is looked through for the last lines.
	maxTail int64 = 16 << 20
)

// logFile is a file with a log, and how far it was read.
type logFile struct {
	name   string
	offset int64
	rest   string // of a line that is not complete yet
}

// stream is the log of a container. It is read by ranges, when its reader wants more.
type stream struct {
	b         *backend
	ctx       context.Context //nolint:containedctx // it ends with Close
	cancel    func()
	task      string
	container string
	run       int32
	opts      api.ContainerLogOpts
	since     time.Time
	line      func(string) (at time.Time, text string) // how a line says its time
	files     []*logFile
	buffer    []byte
	over      bool // all was read
}

// StreamLog implements podgroup.LogStreamer. Each run of a container by a script has a file
// with the time before each line. Tasks of Batch's own have what they write in two files,
// without times.
func (b *backend) StreamLog(ctx context.Context, u *podgroup.Unit, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	l, _ := u.Data.(*label)
	if l == nil {
		return nil, errdefs.NotFound("the task does not say which pod it runs")
	}
	c := u.Container(container)
	if opts.Previous {
		opts.Follow = false // nothing is added to it
	}
	s := &stream{b: b, task: u.ID, container: container, opts: opts, run: c.Restarts, since: opts.SinceTime, line: stamped}
	if opts.SinceSeconds > 0 {
		s.since = time.Now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	switch {
	case l.Script:
		run := b.writtenRun(u.ID, container, opts.Previous)
		s.files = []*logFile{{name: fmt.Sprintf("wd/logs/%s.%d.log", container, run)}}
	case opts.Previous:
		return nil, errdefs.InvalidInput("Azure Batch keeps no log of the run before")
	case olderID.MatchString(u.ID):
		s.files, s.line = []*logFile{{name: "wd/" + container + ".log"}}, inJSON
	default:
		s.files, s.line = []*logFile{{name: "stdout.txt"}, {name: "stderr.txt"}}, unstamped
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if err := s.begin(); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// writtenRun returns the number of a container's run, or of the one before.
func (b *backend) writtenRun(id, container string, previous bool) int32 {
	w := b.detailOf(id).containers[container]
	if previous && w.now.State != podgroup.Waiting && w.last.State == podgroup.Terminated {
		return w.run - 1
	}
	return w.run
}

// stamped divides a line of docker logs -t.
func stamped(line string) (at time.Time, text string) {
	stamp, text, _ := strings.Cut(line, " ")
	if at = parseTime(stamp); at.IsZero() {
		return at, line
	}
	return at, text
}

// inJSON divides a line of a file of Docker, which logs of the older provider are.
func inJSON(line string) (at time.Time, text string) {
	var entry struct {
		Log  string    `json:"log"`
		Time time.Time `json:"time"`
	}
	if json.Unmarshal([]byte(line), &entry) != nil {
		return at, line
	}
	return entry.Time, entry.Log
}

func unstamped(line string) (time.Time, string) { return time.Time{}, line }

// begin reads what there is at first: the last lines only, if they are wanted.
func (s *stream) begin() error {
	if s.opts.Tail <= 0 {
		return s.readMore(!s.opts.Follow)
	}
	var lines []string
	for _, f := range s.files {
		last, err := s.tailOf(f)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		lines = append(lines, last...)
	}
	lines = lines[max(0, len(lines)-s.opts.Tail):]
	s.buffer = []byte(strings.Join(lines, ""))
	s.over = !s.opts.Follow
	return nil
}

// tailOf returns the last lines of a file, and has it read on from there.
func (s *stream) tailOf(f *logFile) ([]string, error) {
	size, err := s.b.sizeOf(s.ctx, s.task, f.name)
	if err != nil {
		return nil, err
	}
	for part := int64(64 << 10); ; part *= 4 {
		f.offset, f.rest = max(0, size-part), ""
		cut := f.offset > 0
		var text string
		for f.offset < size {
			more, err := s.b.readRange(s.ctx, s.task, f.name, f.offset, min(maxRange, size-f.offset))
			if err != nil {
				return nil, err
			}
			if more == "" {
				break
			}
			text += more
			f.offset += int64(len(more))
		}
		if cut {
			_, text, _ = strings.Cut(text, "\n")
		}
		lines := s.lines(f, text, !s.opts.Follow)
		if len(lines) >= s.opts.Tail || !cut || part >= maxTail {
			return lines[max(0, len(lines)-s.opts.Tail):], nil
		}
	}
}

// lines returns the wanted lines of a text, as the client wants them. An incomplete one is
// kept for later, unless it is the last.
func (s *stream) lines(f *logFile, text string, last bool) (wanted []string) {
	text = f.rest + text
	f.rest = ""
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			if !last {
				f.rest = line
				break
			}
			line += "\n"
		}
		at, line := s.line(line)
		if !at.IsZero() && at.Before(s.since) {
			continue
		}
		if s.opts.Timestamps && !at.IsZero() {
			line = at.UTC().Format(time.RFC3339Nano) + " " + line
		}
		wanted = append(wanted, line)
	}
	return wanted
}

// readMore reads what is new in all files. Last is set if nothing more comes after the end of
// the files.
func (s *stream) readMore(last bool) error {
	missing, full := 0, false
	var failed error
	for _, f := range s.files {
		text, err := s.b.readRange(s.ctx, s.task, f.name, f.offset, maxRange)
		if errdefs.IsNotFound(err) {
			missing, failed = missing+1, err
			continue
		}
		if err != nil {
			return err
		}
		f.offset += int64(len(text))
		isFull := int64(len(text)) == maxRange
		s.buffer = append(s.buffer, strings.Join(s.lines(f, text, last && !isFull), "")...)
		if full = full || isFull; isFull && last { // the next file comes after this one
			return nil
		}
	}
	if last && missing == len(s.files) && !s.opts.Follow {
		return fmt.Errorf("there is no log on the machine, or the machine is gone: %w", failed)
	}
	s.over = last && !full
	return nil
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.buffer) == 0 {
		if s.over {
			return 0, io.EOF
		}
		last := !s.opts.Follow || s.ended() // before it is read, so that the last lines are not missed
		err := s.readMore(last)
		delay, later := errdefs.RetryAfter(err)
		switch passes := later || errdefs.IsUnavailable(err); {
		case err == nil && (last || len(s.buffer) > 0):
			continue
		case err != nil && (!passes || !s.opts.Follow):
			return 0, err
		}
		if err := periodic.Sleep(s.ctx, max(delay, pollInterval)); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.buffer)
	s.buffer = s.buffer[n:]
	return n, nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.cancel()
	return nil
}

// ended reports whether the run of the container has ended.
func (s *stream) ended() bool {
	t, err := s.b.show(s.ctx, s.task, listed)
	if err != nil {
		return errdefs.IsNotFound(err)
	}
	if l := parseLabel(deref(t.DisplayName)); l != nil && s.b.needsDetail(t, l) && hasStarted(t) {
		s.b.readState(s.ctx, t)
	}
	u := s.b.unit(t, nil)
	c := u.Container(s.container)
	if c == nil { // a task of the older provider, or one that was lost
		return !same(t.State, azbatch.TaskStateRunning)
	}
	return c.Now.State != podgroup.Executing || c.Restarts != s.run
}

// readRange returns a part of a file of a task; empty if the file is not that long.
func (b *backend) readRange(ctx context.Context, id, name string, from, length int64) (text string, err error) {
	err = b.budget.Do(ctx, actionFile, func() error {
		got, err := b.client.GetTaskFile(ctx, b.cfg.JobID, id, name, &azbatch.GetTaskFileOptions{OCPRange: new(fmt.Sprintf("bytes=%d-%d", from, from+length-1))})
		if refusal, ok := errors.AsType[*azcore.ResponseError](err); ok && refusal.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			return nil
		}
		if err = classify(podgroup.ActionLog, err); err != nil {
			return err
		}
		defer got.Body.Close()
		read, err := io.ReadAll(io.LimitReader(got.Body, length))
		if err != nil {
			return errdefs.AsUnavailable(err)
		}
		text = string(read)
		return nil
	})
	return text, err
}

// headCodes are the codes of answers to HEAD, which have no body to say them.
var headCodes = map[int]string{
	http.StatusNotFound: "FileNotFound", http.StatusConflict: "OperationInvalidForCurrentState", http.StatusServiceUnavailable: "ServerBusy",
}

// sizeOf returns the size of a file of a task.
func (b *backend) sizeOf(ctx context.Context, id, name string) (size int64, err error) {
	err = b.budget.Do(ctx, actionFile, func() error {
		properties, err := b.client.GetTaskFileProperties(ctx, b.cfg.JobID, id, name, nil)
		if refusal, ok := errors.AsType[*azcore.ResponseError](err); ok && refusal.ErrorCode == "" {
			refusal.ErrorCode = headCodes[refusal.StatusCode]
		}
		size = deref(properties.ContentLength)
		return classify(podgroup.ActionLog, err)
	})
	return size, err
}
