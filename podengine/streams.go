package podengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/internal/runtimestream"
)

// RunInContainer runs a command in a container, by the streaming server of the
// runtime.
func (e *Engine) RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error {
	inc, err := e.runningContainer(ctx, namespace, podName, containerName)
	if err != nil {
		return err
	}
	if e.cfg.Streams != nil {
		return direct(ctx, attach, func(s session) error {
			return e.cfg.Streams.Exec(ctx, inc.id, cmd, s.in, s.out, s.errs, s.tty, s.sizes)
		})
	}
	answer, err := e.cfg.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: inc.id,
		Cmd:         cmd,
		Tty:         attach.TTY(),
		Stdin:       attach.Stdin() != nil,
		Stdout:      attach.Stdout() != nil,
		Stderr:      attach.Stderr() != nil && !attach.TTY(),
	})
	if err != nil {
		return fmt.Errorf("the runtime cannot run a command in container %q: %w", containerName, err)
	}
	return stream(ctx, answer.Url, attach)
}

// AttachToContainer connects to the main process of a container.
func (e *Engine) AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error {
	inc, err := e.runningContainer(ctx, namespace, podName, containerName)
	if err != nil {
		return err
	}
	if e.cfg.Streams != nil {
		return direct(ctx, attach, func(s session) error {
			return e.cfg.Streams.Attach(ctx, inc.id, s.in, s.out, s.errs, s.tty, s.sizes)
		})
	}
	tty := attach.TTY()
	answer, err := e.cfg.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: inc.id,
		Tty:         tty,
		Stdin:       attach.Stdin() != nil,
		Stdout:      attach.Stdout() != nil,
		Stderr:      attach.Stderr() != nil && !tty,
	})
	if err != nil {
		return fmt.Errorf("the runtime cannot attach to container %q: %w", containerName, err)
	}
	return stream(ctx, answer.Url, attach)
}

// stream connects attach to a session that the runtime has prepared. The error
// of a command that fails has its exit code.
func stream(ctx context.Context, address string, attach api.AttachIO) error {
	at, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("the runtime gave an address that is none: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // so that nobody waits for sizes any longer
	conn, err := runtimestream.Dial(ctx, at, remotecommand.StreamProtocolV4Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)()
	result, err := connect(ctx, conn, attach)
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return exitError(result)
}

// connect connects attach to the streams of a session, and returns the result that the
// runtime sends at the end.
func connect(ctx context.Context, conn *runtimestream.Conn, attach api.AttachIO) (result []byte, err error) {
	status := limitedBuffer{left: maxResult}
	var until []*runtimestream.Stream
	open := func(kind string, out io.Writer) *runtimestream.Stream {
		if err != nil {
			return nil
		}
		var s *runtimestream.Stream
		s, err = conn.Open(out, runtimestream.Header{Name: "streamtype", Value: kind})
		return s
	}
	until = append(until, open(corev1.StreamTypeError, &status))
	var in, resize *runtimestream.Stream
	if attach.Stdin() != nil {
		in = open(corev1.StreamTypeStdin, nil)
	}
	if out := attach.Stdout(); out != nil {
		until = append(until, open(corev1.StreamTypeStdout, out))
	}
	if out := attach.Stderr(); out != nil && !attach.TTY() {
		until = append(until, open(corev1.StreamTypeStderr, out))
	}
	if attach.TTY() {
		resize = open(corev1.StreamTypeResize, nil)
	}
	if err != nil {
		return nil, err
	}
	if in != nil {
		go in.CopyFrom(attach.Stdin()) // ends with the stream, which its owner closes
	}
	if resize != nil {
		go func() { // ends with ctx
			queue, encoder := sizes{ctx, attach.Resize()}, json.NewEncoder(resize)
			for size := queue.Next(); size != nil && encoder.Encode(size) == nil; size = queue.Next() {
			}
		}()
	}
	err = conn.Serve(until...)
	return status.data, err
}

// maxResult is how much of a result is read.
const maxResult = 64 << 10

// limitedBuffer keeps the first bytes that are written to it.
type limitedBuffer struct {
	data []byte
	left int
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.data, b.left = append(b.data, p[:n]...), b.left-n
	return len(p), nil
}

// exitError decodes the result of a command.
func exitError(result []byte) error {
	if len(result) == 0 {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(result, &status); err != nil {
		return fmt.Errorf("the runtime's result of the command is no status: %w", err)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return nil
	case status.Reason != remotecommand.NonZeroExitCodeReason || status.Details == nil:
		return errors.New(status.Message)
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == remotecommand.ExitCodeCauseType {
			code, err := strconv.Atoi(cause.Message)
			if err != nil {
				return fmt.Errorf("the runtime's exit code of the command is no number: %w", err)
			}
			return exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
		}
	}
	return fmt.Errorf("the runtime does not say with which code the command ended: %s", status.Message)
}

// sizes is the queue of a terminal's sizes.
type sizes struct {
	ctx  context.Context
	from <-chan api.TermSize
}

func (s sizes) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-s.from:
		if !ok {
			return nil
		}
		return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
	case <-s.ctx.Done():
		return nil
	}
}

// PortForward connects stream to a port of the pod, by the streaming server of
// the runtime.
func (e *Engine) PortForward(ctx context.Context, namespace, podName string, port int32, stream io.ReadWriteCloser) error {
	w := e.byName(namespace, podName)
	if w == nil {
		return errdefs.NotFoundf("pod %q does not run here", podName)
	}
	pod, _ := w.current()
	seen, err := e.observe(ctx, pod.UID)
	if err != nil {
		return err
	}
	box := seen.sandbox()
	if box == nil || !box.ready {
		return fmt.Errorf("pod %q has no network: it does not run", podName)
	}
	if e.cfg.Streams != nil {
		err := untilDone(ctx, func() error { return e.cfg.Streams.PortForward(ctx, box.id, port, stream) })
		_ = stream.Close()
		if ctx.Err() != nil {
			return nil // nobody waits for more
		}
		return err
	}
	answer, err := e.cfg.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: box.id, Port: []int32{port}})
	if err != nil {
		return fmt.Errorf("the runtime cannot forward to port %d: %w", port, err)
	}
	return forward(ctx, answer.Url, port, stream)
}

// failureTime is how long the runtime may take to say why it ended a stream.
const failureTime = 5 * time.Second

// forward copies between stream and a port, over a connection of its own to the
// runtime.
func forward(ctx context.Context, address string, port int32, stream io.ReadWriteCloser) error {
	at, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("the runtime gave an address that is none: %w", err)
	}
	conn, err := runtimestream.Dial(ctx, at, portForwardProtocol)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)()
	failure := limitedBuffer{left: maxResult}
	headers := func(kind string) []runtimestream.Header {
		return []runtimestream.Header{{Name: "streamtype", Value: kind}, {Name: "port", Value: strconv.Itoa(int(port))}, {Name: "requestid", Value: "0"}}
	}
	failures, err := conn.Open(&failure, headers(corev1.StreamTypeError)...)
	if err != nil {
		return err
	}
	if err := failures.CloseWrite(); err != nil { // only the runtime has something to say
		return fmt.Errorf("write to the runtime's streaming server: %w", err)
	}
	data, err := conn.Open(stream, headers(corev1.StreamTypeData)...)
	if err == nil {
		go data.CopyFrom(stream) // ends with stream, which is closed below
		err = conn.Serve(data)
	}
	_ = stream.Close()
	// The runtime may have ended the stream already, and says why.
	timeout := time.AfterFunc(failureTime, conn.Close)
	defer timeout.Stop()
	_ = conn.Serve(failures) // what was read before an error counts
	switch {
	case ctx.Err() != nil:
		return nil // nobody waits for more
	case len(failure.data) > 0:
		return errors.New(string(failure.data))
	}
	return err
}

// portForwardProtocol is the protocol of a session that forwards ports.
const portForwardProtocol = "portforward.k8s.io"
