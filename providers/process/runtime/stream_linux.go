package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// Exec implements the CRI: it returns where the command can be run, once.
func (r *Runtime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	c, err := r.container(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	// An error of this kind is returned at once.
	if _, err := r.execCommand(c, request.GetCmd()); err != nil {
		return nil, err
	}
	server, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	return server.GetExec(request)
}

// Attach implements the CRI: it returns where the container can be attached to,
// once.
func (r *Runtime) Attach(_ context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	c, err := r.container(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := c.mustRun(); err != nil {
		return nil, err
	}
	server, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	return server.GetAttach(request)
}

// PortForward implements the CRI: it returns where ports of the pod, which are
// those on which its processes listen, can be reached, once.
func (r *Runtime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	box, err := r.sandbox(request.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if box.isStopped() {
		return nil, invalid("sandbox %s was stopped", box.id)
	}
	server, err := r.streamServer()
	if err != nil {
		return nil, err
	}
	return server.GetPortForward(request)
}

// Streams returns what connects to containers and sandboxes by their IDs, for users in
// this process: without URLs, and a second connection for each session.
func (r *Runtime) Streams() streaming.Runtime { return streams{r} }

// streams are what the streaming server, and users in this process, ask of the runtime.
type streams struct{ r *Runtime }

var _ streaming.Runtime = streams{}

// Exec runs a command with the streams of a client.
func (s streams) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := s.r.container(id)
	if err != nil {
		return err
	}
	if tty {
		return s.r.runTerminal(ctx, c, cmd, in, out, resize)
	}
	return s.r.run(ctx, c, cmd, in, writer(out), writer(errOut))
}

// writer makes an interface that holds nothing nil.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

// Attach connects a client to the container's own streams, until it goes or the
// container ends.
func (s streams) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	r := s.r
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if err := c.mustRun(); err != nil {
		return err
	}
	ctx, cancel := r.until(ctx)
	defer cancel()
	conn, err := shim.Dial(c.dir)
	if err != nil {
		return fmt.Errorf("the shim of container %s: %w", id, err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var p pipes
	defer p.close()
	if err := p.attach(conn, in, writer(out), writer(errOut)); err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	r.watchSize(ctx, resize, func(size remotecommand.TerminalSize) {
		_ = conn.Send(shim.Request{Op: shim.OpResize, Rows: size.Height, Columns: size.Width})
	})
	p.start(r)
	// It ends with the container, or with the client.
	_ = conn.Receive(&shim.Response{})
	p.drain(ctx)
	return nil
}

// attach asks the shim to connect the streams that there are.
func (p *pipes) attach(conn *shim.Conn, in io.Reader, outs ...io.Writer) error {
	request := shim.Request{Op: shim.OpAttach}
	var files []*os.File
	if in != nil {
		f, err := p.input(in)
		if err != nil {
			return err
		}
		request.Streams[0], files = true, append(files, f)
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		f, err := p.output(out)
		if err != nil {
			return err
		}
		request.Streams[i+1], files = true, append(files, f)
	}
	var response shim.Response
	err := errors.Join(conn.Send(request, files...), conn.Receive(&response))
	p.closeRemote()
	if err == nil && response.Error != "" {
		err = errors.New(response.Error)
	}
	return err
}

// PortForward connects a client to a port of the pod.
func (s streams) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer func() { _ = stream.Close() }()
	box, err := s.r.sandbox(id)
	if err != nil {
		return err
	}
	ctx, cancel := s.r.until(ctx)
	defer cancel()
	conn, err := s.r.dialPod(ctx, box, port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close(); _ = stream.Close() })()
	s.r.spawn(func() {
		_, _ = io.Copy(conn, stream)
		// The server may still have something to say.
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	})
	_, err = io.Copy(stream, conn)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return nil
}
