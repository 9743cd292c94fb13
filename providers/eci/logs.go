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
	// logPollInterval is how often a log that is followed is asked for more.
	logPollInterval = 2 * time.Second
	// followedListing is how old a listing may be that says whether the container
	// of such a log runs: the controller asks for one more often than that.
	followedListing = 10 * time.Second
)

// maxTail is how many lines the API returns at most.
const maxTail = 2000

// GetContainerLogs returns what ECI keeps of a container's log: the newest part of
// it. A log is followed by asking again.
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
	// Of one that waits to be started again there is the log of its last run.
	if !opts.Previous && c.CurrentState.State != containerRunning && c.CurrentState.State != containerTerminated && c.PreviousState.State != containerTerminated {
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start", containerName, podName)
	}
	l := &containerLog{p: p, group: found.ContainerGroupId, container: containerName, opts: opts}
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
	p              *Provider
	group          string
	container      string
	opts           api.ContainerLogOpts
	since          string // the time of the last line that was taken
	sameTime, seen int    // of lines of that time: how many were taken, and are passed
}

// fetch asks for the log once.
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
	request.Tail = integer(maxTail) // for the API's default is less
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

// follow returns a reader of the log that ends with the container's run, ctx, or
// the provider.
func (l *containerLog) follow(ctx context.Context) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	reader, writer := io.Pipe()
	go func() {
		defer cancel()
		_ = writer.CloseWithError(l.copyTo(ctx, writer))
	}()
	return logReader{reader, cancel}
}

// logReader is a pipe whose other end stops when it is closed.
type logReader struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (r logReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// copyTo writes lines until the container has ended.
func (l *containerLog) copyTo(ctx context.Context, w io.Writer) error {
	for {
		running := l.running(ctx) // asked before, so that the last lines are there
		text, err := l.fetch(ctx, true)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil && !isThrottled(err) && !errdefs.IsUnavailable(err) {
			return err
		}
		if fresh := l.fresh(text); fresh != "" { // an empty write waits for a reader, too
			if _, err := io.WriteString(w, fresh); err != nil {
				return err
			}
		}
		if !running {
			return nil
		}
		timer := time.NewTimer(logPollInterval)
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

// running tells whether the container runs, or may run again.
func (l *containerLog) running(ctx context.Context) bool {
	all, err := l.p.groups.within(ctx, followedListing)
	if err != nil {
		return true
	}
	for _, found := range all {
		if found.ContainerGroupId == l.group {
			c, err := containerIn(&found, l.container)
			return err == nil && c.CurrentState.State == containerRunning
		}
	}
	return false
}

// fresh returns the lines that were not taken before, with their timestamps only
// if the client wants them. Lines come in the order of their times; one without a
// time goes with the line before it.
func (l *containerLog) fresh(text string) string {
	var b strings.Builder
	l.seen = 0
	taken := true // the line before
	for line := range strings.Lines(text) {
		stamp, rest, ok := strings.Cut(line, " ")
		if !ok {
			stamp, rest = strings.TrimSuffix(line, "\n"), "\n"
		}
		if timeOf(stamp).Time.IsZero() {
			rest = line
		} else {
			taken = l.take(stamp)
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

// take tells whether the next line, of that time, is a new one.
func (l *containerLog) take(stamp string) bool {
	switch {
	case l.since != "" && earlier(stamp, l.since), timeOf(stamp).Time.Before(l.opts.SinceTime):
		return false // the API is asked for whole seconds
	case stamp == l.since:
		if l.seen++; l.seen <= l.sameTime {
			return false
		}
		l.sameTime++
	default:
		l.since, l.sameTime, l.seen = stamp, 1, 1
	}
	return true
}

// earlier compares the times of lines, whose fractions have no fixed length.
func earlier(a, b string) bool {
	return timeOf(a).Time.Before(timeOf(b).Time)
}
