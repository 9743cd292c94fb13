package podengine

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// GetContainerLogs reads the log of a container, of its previous attempt if
// that is asked for. Closing the reader ends it.
func (e *Engine) GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	return e.GetContainerLogStream(ctx, namespace, podName, containerName, "", opts)
}

// GetContainerLogStream is GetContainerLogs for one of a container's output
// streams, "Stdout" or "Stderr".
func (e *Engine) GetContainerLogStream(ctx context.Context, namespace, podName, containerName, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	pod, inc, err := e.findAttempt(ctx, namespace, podName, containerName, opts.Previous)
	if err != nil {
		return nil, err
	}
	path := e.logFile(pod, containerName, inc.attempt)
	if _, err := os.Stat(path); err != nil {
		return nil, errdefs.InvalidInputf("the log of container %q in pod %q is not there: %v", containerName, podName, err)
	}
	options := logOptions(opts)
	if opts.Follow {
		followed, err := followLog(context.WithoutCancel(ctx), path, stream, options, e.logGoesOn(pod, containerName, inc.id))
		if err != nil {
			return nil, err
		}
		return followed, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the reader ends it
	out, in := io.Pipe()
	var stdout, stderr io.Writer = in, in
	switch stream {
	case corev1.LogStreamStdout:
		stderr = io.Discard
	case corev1.LogStreamStderr:
		stdout = io.Discard
	}
	go func() { // ends with the reader
		defer cancel()
		in.CloseWithError(logs.ReadLogs(ctx, path, inc.id, options, e.cfg.Runtime, stdout, stderr))
	}()
	return &logReader{out, cancel}, nil
}

// logGoesOn returns a function that reports whether a container, by its ID, may write
// more to its log. The engine knows that of containers that run; the runtime is asked
// about others, and about all of them now and then. A runtime that cannot say for a
// while is no end of a log.
func (e *Engine) logGoesOn(pod *corev1.Pod, name, id string) func(context.Context) (bool, error) {
	var asked, failing time.Time
	return func(ctx context.Context) (bool, error) {
		now := time.Now()
		if now.Sub(asked) < logStateEvery && e.seenRunning(pod, name, id) {
			return true, nil
		}
		answer, err := e.cfg.Runtime.ContainerStatus(ctx, id, false)
		switch {
		case err == nil:
			asked, failing = now, time.Time{}
			return answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, nil
		case gone(err):
			return false, nil
		case failing.IsZero():
			failing = now
		case now.Sub(failing) > maxLogFailures:
			return false, fmt.Errorf("the runtime does not say whether container %q runs: %w", name, err)
		}
		return true, nil
	}
}

// seenRunning reports whether the container with that ID ran when the engine last saw
// its pod.
func (e *Engine) seenRunning(pod *corev1.Pod, name, id string) bool {
	w := e.worker(pod.UID)
	if w == nil {
		return false
	}
	s := w.statusBefore(name)
	return s != nil && s.State.Running != nil && s.ContainerID == e.runtimeName.of(id)
}

// logReader stops the reading of a log when it is closed.
type logReader struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (r *logReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

func logOptions(opts api.ContainerLogOpts) *logs.LogOptions {
	options := &logs.LogOptions{Since: opts.SinceTime, Follow: opts.Follow, Timestamp: opts.Timestamps}
	if opts.Tail > 0 {
		options.TailLines = ptr.To(int64(opts.Tail))
	}
	if opts.LimitBytes > 0 {
		options.LimitBytes = ptr.To(int64(opts.LimitBytes))
	}
	if opts.SinceSeconds > 0 {
		options.Since = time.Now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	return options
}

// findAttempt finds an attempt of a container: the newest that was started, since only then
// there is a log, or the one whose end the status has as its last state.
func (e *Engine) findAttempt(ctx context.Context, namespace, podName, name string, previous bool) (*corev1.Pod, *container, error) {
	w := e.byName(namespace, podName)
	if w == nil {
		return nil, nil, errdefs.NotFoundf("pod %q does not run here", podName)
	}
	pod, _ := w.current()
	if _, c := findContainer(pod, name); c == nil {
		return nil, nil, errdefs.NotFoundf("container %q not found in pod %q", name, podName)
	}
	seen, err := e.observe(ctx, pod.UID)
	if err != nil {
		return nil, nil, err
	}
	inc := seen.newestStarted(name)
	if previous {
		inc = seen.byID(name, w.lastEnded(name))
	}
	switch {
	case inc == nil && previous:
		return nil, nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", name, podName)
	case inc == nil:
		return nil, nil, errdefs.InvalidInputf("container %q in pod %q %s", name, podName, w.whyNoLog(name))
	}
	return pod, inc, nil
}

// whyNoLog is why there is no log of a container, in the kubelet's words. If the runtime
// does not show the container, it may have lost it.
func (w *worker) whyNoLog(name string) string {
	s, phase := w.statusBefore(name), w.snapshot().Status.Phase
	over := phase == corev1.PodSucceeded || phase == corev1.PodFailed
	switch {
	case s == nil && over, s != nil && s.State.Running != nil:
		return "is not available"
	case s != nil && s.State.Terminated != nil:
		return "is terminated"
	}
	return "is waiting to start: " + w.whyItWaits(name)
}

// whyItWaits is why a container has not run yet, in the kubelet's words.
func (w *worker) whyItWaits(name string) string {
	reason := "ContainerCreating"
	if s := w.statusBefore(name); s != nil && s.State.Waiting != nil {
		reason = s.State.Waiting.Reason
	}
	switch reason {
	case image.ErrImagePull:
		return "image can't be pulled"
	case image.ErrImagePullBackOff:
		return "trying and failing to pull image"
	}
	return reason
}

// lastEnded is the last attempt of a container that has ended and is to be
// followed by another, or is by now.
func (w *worker) lastEnded(name string) (id string) {
	if s := w.statusBefore(name); s != nil && s.LastTerminationState.Terminated != nil {
		id = bareID(s.LastTerminationState.Terminated.ContainerID)
	}
	return id
}

// runningContainer finds a container that runs.
func (e *Engine) runningContainer(ctx context.Context, namespace, podName, name string) (*container, error) {
	_, inc, err := e.findAttempt(ctx, namespace, podName, name, false)
	if err != nil {
		return nil, err
	}
	if inc.phase != running {
		return nil, fmt.Errorf("container %q in pod %q does not run", name, podName)
	}
	return inc, nil
}
