package eci

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	// logPollInterval is how often a log that is followed is fetched.
	logPollInterval = 2 * time.Second
	// followListingAge is the maximum age of a listing that reports whether the
	// container of such a log is running: the controller lists more often than that.
	followListingAge = 10 * time.Second
)

// maxTail is the maximum number of lines that the API returns.
const maxTail = 2000

// GetContainerLogs returns the part of a container's log that ECI keeps: the newest. To
// follow a log, it is fetched again and again.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	found, err := p.find(ctx, namespace, podName, "")
	if err != nil {
		return nil, err
	}
	c, err := containerIn(found, containerName)
	if err != nil {
		return nil, err
	}
	if opts.Previous && c.PreviousState.State != containerTerminated {
		return nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", containerName, podName)
	}
	// A container that waits to be restarted has the log of its last run.
	if !opts.Previous && c.CurrentState.State != containerRunning && c.CurrentState.State != containerTerminated && c.PreviousState.State != containerTerminated {
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start", containerName, podName)
	}
	l := &containerLog{p: p, group: found.ContainerGroupId, container: containerName, opts: opts, run: c.RestartCount}
	if !opts.Follow || opts.Previous {
		text, err := l.fetch(ctx, opts.Timestamps)
		return io.NopCloser(strings.NewReader(text)), err
	}
	return l.follow(ctx), nil
}

// containerIn returns a container of a group.
func containerIn(found *group, name string) (*eci.DescribeContainerGroupsContainer1, error) {
	for _, list := range [][]eci.DescribeContainerGroupsContainer1{found.InitContainers, found.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	return nil, errdefs.NotFoundf("container %q not found in pod %s/%s", name, tagOf(found, TagNamespace), tagOf(found, TagPodName))
}

// containerLog is the log of a container.
type containerLog struct {
	p                *Provider
	group            string
	container        string
	opts             api.ContainerLogOpts
	run              int // how often the container had been restarted
	marks            []mark
	since            string // the timestamp of the last line that was returned
	atSince, skipped int    // lines with that timestamp: how many were returned, and how many of these were skipped in this response
}

// mark is how far a log had been read at some time.
type mark struct {
	since   string
	atSince int
}

// maxMarks is for how many fetches marks are kept: those since a listing that is used.
const maxMarks = int(followListingAge/logPollInterval) + 2

// fetch requests the log once.
func (l *containerLog) fetch(ctx context.Context, timestamps bool) (string, error) {
	request := eci.CreateDescribeContainerLogRequest()
	request.RegionId, request.ContainerGroupId, request.ContainerName = l.p.cfg.Region, l.group, l.container
	switch {
	case l.since != "":
		if t := timeOf(l.since); !t.IsZero() {
			request.StartTime = t.UTC().Truncate(time.Second).Format(time.RFC3339)
		}
	case l.opts.SinceSeconds > 0:
		request.SinceSeconds = integer(l.opts.SinceSeconds)
	case !l.opts.SinceTime.IsZero():
		request.StartTime = l.opts.SinceTime.UTC().Format(time.RFC3339)
	}
	request.Tail = integer(maxTail) // the API's default is less
	if l.opts.Tail > 0 && l.since == "" {
		request.Tail = integer(min(l.opts.Tail, maxTail))
	}
	if l.opts.Previous {
		request.LastTime = boolean(true)
	}
	if timestamps { // the SDK has no field for it
		request.QueryParams["Timestamps"] = strconv.FormatBool(true)
	}
	response := eci.CreateDescribeContainerLogResponse()
	if err := l.p.client.do(ctx, request, response); err != nil {
		return "", err
	}
	return response.Content, nil
}

// follow returns a reader of the log that ends with the container, ctx, or the
// provider.
func (l *containerLog) follow(ctx context.Context) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	reader, writer := io.Pipe()
	go func() { // ends with the reader or ctx
		defer cancel()
		_ = writer.CloseWithError(l.copyTo(ctx, writer))
	}()
	return logReader{reader, cancel}
}

// logReader is a pipe whose writer stops when it is closed.
type logReader struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (r logReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// copyTo writes new lines until the run of the container has ended, as the kubelet does:
// the next run has a log of its own.
func (l *containerLog) copyTo(ctx context.Context, w io.Writer) error {
	for {
		state := l.state(ctx) // checked before the fetch, so that the last lines are not missed
		text, err := l.fetch(ctx, true)
		passes := isThrottled(err) || errdefs.IsUnavailable(err)
		if errdefs.IsNotFound(err) || passes && state == runGone {
			return nil
		}
		if err != nil && !passes {
			return err
		}
		if fresh := l.newLines(text); fresh != "" { // an empty write would wait for a reader
			if _, err := io.WriteString(w, fresh); err != nil {
				return err
			}
		}
		if err == nil && state != runGoesOn {
			return nil
		}
		l.marks = append(l.marks, mark{l.since, l.atSince})
		l.marks = l.marks[max(0, len(l.marks)-maxMarks):]
		delay, _ := errdefs.RetryAfter(err)
		timer := time.NewTimer(max(delay, logPollInterval))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-l.p.done:
			timer.Stop()
			return nil
		}
	}
}

// runState is whether the run of a container goes on.
type runState int

const (
	runGoesOn runState = iota // or may go on
	runEnded
	runGone // with its container group
)

// state returns the state of the run whose log is followed. If another run has begun, the
// next fetch is for the rest of the log of the one before.
func (l *containerLog) state(ctx context.Context) runState {
	all, err := l.p.groups.youngerThan(ctx, followListingAge)
	if err != nil {
		return runGoesOn
	}
	for _, found := range all {
		if found.ContainerGroupId != l.group {
			continue
		}
		c, err := containerIn(&found, l.container)
		if err != nil {
			return runGone
		}
		if c.RestartCount != l.run && c.CurrentState.StartTime != "" {
			l.rewind(timeOf(c.CurrentState.StartTime).Time)
			return runEnded
		}
		if c.CurrentState.State != containerRunning {
			return runEnded
		}
		return runGoesOn
	}
	return runGone
}

// rewind makes the next fetch continue the log of the previous run, after the last line
// that was certainly of that run: lines since the start of the current run may have been
// returned before a listing had it.
func (l *containerLog) rewind(start time.Time) {
	l.opts.Previous = true
	for ; l.since != "" && !timeOf(l.since).Time.Before(start); l.marks = l.marks[:max(0, len(l.marks)-1)] {
		l.since, l.atSince = "", 0
		if n := len(l.marks); n > 0 {
			l.since, l.atSince = l.marks[n-1].since, l.marks[n-1].atSince
		}
	}
}

// newLines returns the lines that were not returned before, with timestamps only if the
// client wants them. Lines are in the order of their timestamps; one without a
// timestamp belongs to the line before it.
func (l *containerLog) newLines(text string) string {
	var b strings.Builder
	l.skipped = 0
	taken := true // whether the line before was
	for line := range strings.Lines(text) {
		stamp, rest, ok := strings.Cut(line, " ")
		if !ok {
			stamp, rest = strings.TrimSuffix(line, "\n"), "\n"
		}
		if timeOf(stamp).Time.IsZero() {
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
func (l *containerLog) accept(stamp string) bool {
	switch {
	case l.since != "" && earlier(stamp, l.since), timeOf(stamp).Time.Before(l.opts.SinceTime):
		return false // the API takes whole seconds
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

// earlier compares the timestamps of lines, whose fractions vary in length.
func earlier(a, b string) bool {
	return timeOf(a).Time.Before(timeOf(b).Time)
}
