package podengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
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
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: at.Scheme == "https"}}, http.MethodPost, at)
	if err != nil {
		return fmt.Errorf("cannot stream from the runtime: %w", err)
	}
	options := remotecommand.StreamOptions{Tty: attach.TTY(), TerminalSizeQueue: sizes{ctx, attach.Resize()}}
	// Interfaces that hold nil pointers would be streams.
	if in := attach.Stdin(); in != nil {
		options.Stdin = in
	}
	if out := attach.Stdout(); out != nil {
		options.Stdout = out
	}
	if out := attach.Stderr(); out != nil && !attach.TTY() {
		options.Stderr = out
	}
	return executor.StreamWithContext(ctx, options)
}

// sizes is a remotecommand.TerminalSizeQueue.
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
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: at.Scheme == "https"}})
	if err != nil {
		return fmt.Errorf("cannot stream from the runtime: %w", err)
	}
	connection, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return fmt.Errorf("cannot connect to the runtime: %w", err)
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()

	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := connection.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("cannot open a stream to the runtime: %w", err)
	}
	_ = failures.Close() // for writing: only the runtime has something to say
	failed := make(chan error, 1)
	go func() { // ends with the connection, which the caller closes
		text, err := io.ReadAll(failures)
		if err == nil && len(text) > 0 {
			err = errors.New(string(text))
		} else {
			err = nil
		}
		failed <- err
	}()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		// The runtime may have ended the stream already, and says why.
		select {
		case why := <-failed:
			err = cmp.Or(why, err)
		case <-time.After(failureTime):
		case <-ctx.Done():
		}
		return fmt.Errorf("cannot open a stream to the runtime: %w", err)
	}

	go func() { // ends with the connection, which the caller closes
		_, _ = io.Copy(data, stream)
		_ = data.Close() // for writing
	}()
	_, _ = io.Copy(stream, data)
	_ = data.Reset()
	_ = stream.Close()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
