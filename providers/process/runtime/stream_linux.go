package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/creack/pty"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// streamServer serves the URLs that Exec, Attach and PortForward return.
type streamServer struct {
	streaming.Server
	http *http.Server

	mu     sync.Mutex
	closed bool
	conns  map[*kept]bool
}

func (r *Runtime) serveStreams(address string) (*streamServer, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("streams (streamAddress): %w", err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}
	server, err := streaming.NewServer(config, streams{r})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	s := &streamServer{Server: server, conns: map[*kept]bool{}}
	s.http = &http.Server{Handler: server, ReadHeaderTimeout: 30 * time.Second,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, keptKey{}, conn)
		}}
	r.spawn(func() { _ = s.http.Serve(listener{l, s}) })
	return s, nil
}

// listener keeps the connections: the HTTP server forgets those that are taken
// over from it.
type listener struct {
	net.Listener
	server *streamServer
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.server.keep(conn), nil
}

// kept is a connection that is kept until it is closed.
type kept struct {
	net.Conn
	server *streamServer
	// ctx ends when the other side has gone. The one of the HTTP request does
	// not, once the connection was taken over.
	ctx    context.Context
	cancel context.CancelFunc
}

type keptKey struct{}

// Read notices that the other side has gone: streams are always read from.
func (k *kept) Read(data []byte) (int, error) {
	n, err := k.Conn.Read(data)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		k.cancel()
	}
	return n, err
}

func (s *streamServer) keep(conn net.Conn) net.Conn {
	k := &kept{Conn: conn, server: s}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[k] = true
	if s.closed {
		_ = conn.Close()
	}
	return k
}

// Close closes the connection.
func (k *kept) Close() error {
	k.cancel()
	k.server.mu.Lock()
	delete(k.server.conns, k)
	k.server.mu.Unlock()
	return k.Conn.Close()
}

func (s *streamServer) close() {
	_ = s.http.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for k := range s.conns {
		_ = k.Conn.Close()
	}
}

// Exec implements the CRI: it returns where the command can be run, once.
func (r *Runtime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	c, err := r.container(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	// Tells at once what would not work.
	if _, err := r.execCommand(c, request.GetCmd()); err != nil {
		return nil, err
	}
	return r.streams.GetExec(request)
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
	return r.streams.GetAttach(request)
}

// PortForward implements the CRI: it returns where ports of the pod, which are
// those of the machine's loopback address, can be reached, once.
func (r *Runtime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	box, err := r.sandbox(request.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if box.isStopped() {
		return nil, invalid("sandbox %s was stopped", box.id)
	}
	return r.streams.GetPortForward(request)
}

// streams are what the streaming server asks of the runtime.
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

// runTerminal runs a command in a terminal.
func (r *Runtime) runTerminal(ctx context.Context, c *container, args []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	command, err := r.execCommand(c, args)
	if err != nil {
		return err
	}
	if getenv(command.Env, "TERM") == "" {
		command.Env = append(command.Env[:len(command.Env):len(command.Env)], "TERM=xterm")
	}
	ctx, cancel := r.until(ctx)
	defer cancel()
	master, slave, err := pty.Open()
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = master.Close() }()
	// The size is known before the command asks for it, if the client has sent it.
	select {
	case size, ok := <-resize:
		if ok {
			_ = setSize(master, size)
		}
	case <-time.After(50 * time.Millisecond):
	}
	s, err := r.begin(ctx, c, command, true, [3]*os.File{slave, slave, slave})
	_ = slave.Close()
	if err != nil {
		return err
	}
	r.followSize(ctx, resize, func(size remotecommand.TerminalSize) { _ = setSize(master, size) })
	if in != nil {
		r.spawn(func() { _, _ = io.Copy(master, in) })
	}
	var p pipes
	p.outputs = []*os.File{master}
	if out == nil {
		out = io.Discard
	}
	p.wg.Go(func() { p.copy(out, master) })
	err = s.wait(ctx)
	p.drain()
	return err
}

func setSize(terminal *os.File, size remotecommand.TerminalSize) error {
	return pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
}

// followSize hands on the sizes of a client's terminal.
func (r *Runtime) followSize(ctx context.Context, sizes <-chan remotecommand.TerminalSize, set func(remotecommand.TerminalSize)) {
	if sizes == nil {
		return
	}
	r.spawn(func() {
		for {
			select {
			case size, ok := <-sizes:
				if !ok {
					return
				}
				set(size)
			case <-ctx.Done():
				return
			}
		}
	})
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
	r.followSize(ctx, resize, func(size remotecommand.TerminalSize) {
		_ = conn.Send(shim.Request{Op: shim.OpResize, Rows: size.Height, Columns: size.Width})
	})
	p.start(r)
	// It ends with the container, or with the client.
	_ = conn.Receive(&shim.Response{})
	p.drain()
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

// PortForward connects a client to a port. The pod's network is the machine's.
func (s streams) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer func() { _ = stream.Close() }()
	if _, err := s.r.sandbox(id); err != nil {
		return err
	}
	ctx, cancel := s.r.until(ctx)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
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
