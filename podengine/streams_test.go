package podengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// fakeStreams is what the runtime does with the sessions that it has prepared.
type fakeStreams struct {
	run  func(id string, command []string, in io.Reader, out, errs io.Writer, tty bool, sizes <-chan remotecommandserver.TerminalSize) error
	port func(port int32, stream io.ReadWriteCloser) error
}

func (f *fakeStreams) Exec(_ context.Context, id string, command []string, in io.Reader, out, errs io.WriteCloser, tty bool, sizes <-chan remotecommandserver.TerminalSize) error {
	return f.run(id, command, in, out, errs, tty, sizes)
}

func (f *fakeStreams) Attach(_ context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool, sizes <-chan remotecommandserver.TerminalSize) error {
	return f.run(id, nil, in, out, errs, tty, sizes)
}

func (f *fakeStreams) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	return f.port(port, stream)
}

// withStreams runs a test with a pod p of a container a, whose runtime has a
// streaming server, and again with one that is in this process.
func withStreams(t *testing.T, f *fakeStreams, test func(r *rig)) {
	t.Helper()
	withStreamingServer(t, f, test)
	inRealTime(t, makePod("a", never), func(r *rig) {
		r.Engine.cfg.Streams = f
		test(r)
	})
}

func withStreamingServer(t *testing.T, f *fakeStreams, test func(r *rig)) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: server.Listener.Addr().String(), Path: "/"}
	config.StreamCreationTimeout = 2 * time.Second // for which the library waits for a client that has gone
	streams, err := streaming.NewServer(config, f)
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = streams
	server.Start()
	defer server.Close()
	inRealTime(t, makePod("a", never), func(r *rig) {
		r.runtime.streams = streams
		test(r)
	})
}

// client is the client of a session.
type client struct {
	in        io.Reader
	out, errs output
	tty       bool
	sizes     chan api.TermSize
}

func (c *client) Stdin() io.Reader            { return c.in }
func (c *client) Stdout() io.WriteCloser      { return &c.out }
func (c *client) Stderr() io.WriteCloser      { return &c.errs }
func (c *client) TTY() bool                   { return c.tty }
func (c *client) Resize() <-chan api.TermSize { return c.sizes }

// output keeps what is written to it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (*output) Close() error { return nil }

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// echo writes its input, and then a line of errors.
func echo(_ string, _ []string, in io.Reader, out, errs io.Writer, _ bool, _ <-chan remotecommandserver.TerminalSize) error {
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	_, err := fmt.Fprintln(errs, "the end")
	return err
}

func TestSessions(t *testing.T) {
	withStreams(t, &fakeStreams{run: echo}, func(r *rig) {
		for name, session := range map[string]func(api.AttachIO) error{
			"exec":   func(io api.AttachIO) error { return r.RunInContainer(r.ctx, "ns", "p", "a", []string{"cat"}, io) },
			"attach": func(io api.AttachIO) error { return r.AttachToContainer(r.ctx, "ns", "p", "a", io) },
		} {
			c := &client{in: strings.NewReader("hello")}
			if err := session(c); err != nil || c.out.String() != "hello" || c.errs.String() != "the end\n" {
				t.Errorf("%s: %q, %q, %v", name, c.out.String(), c.errs.String(), err)
			}
		}
	})
}

func TestExecOfACommand(t *testing.T) {
	var f fakeStreams
	withStreams(t, &f, func(r *rig) {
		f.run = func(id string, command []string, in io.Reader, _, _ io.Writer, tty bool, _ <-chan remotecommandserver.TerminalSize) error {
			if id != r.runtime.newest("a").Id || !slices.Equal(command, []string{"false", "-x y"}) || in != nil || tty {
				t.Errorf("%s runs %q, input %v, terminal %v", id, command, in, tty)
			}
			return exec.CodeExitError{Err: errors.New("no"), Code: 3}
		}
		err := r.RunInContainer(r.ctx, "ns", "p", "a", []string{"false", "-x y"}, &client{})
		var exit exec.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 3 {
			t.Errorf("a command that exits with 3 gives %v", err)
		}
	})
}

// Clients see once what has failed, and at what, although the runtime's streaming server says so, too.
func TestFailuresOfSessions(t *testing.T) {
	f := &fakeStreams{run: func(string, []string, io.Reader, io.Writer, io.Writer, bool, <-chan remotecommandserver.TerminalSize) error {
		return errors.New("no such file")
	}}
	withStreams(t, f, func(r *rig) {
		server := httptest.NewServer(api.PodHandler(api.PodHandlerConfig{RunInContainer: r.RunInContainer, AttachToContainer: r.AttachToContainer}, false))
		defer server.Close()
		for path, want := range map[string]string{
			"/exec/ns/p/a?output=1&command=x": "Internal error occurred: error executing command in container: no such file",
			"/attach/ns/p/a?output=1":         "Internal error occurred: error attaching to container: no such file",
		} {
			session, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: server.URL}, "GET", server.URL+path)
			if err != nil {
				t.Fatal(err)
			}
			if err := session.StreamWithContext(r.ctx, remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
		}
	})
}

func TestTerminal(t *testing.T) {
	f := &fakeStreams{run: func(_ string, _ []string, _ io.Reader, out, errs io.Writer, tty bool, sizes <-chan remotecommandserver.TerminalSize) error {
		size := <-sizes
		_, err := fmt.Fprintf(out, "%dx%d %v %v", size.Width, size.Height, tty, errs)
		return err
	}}
	withStreams(t, f, func(r *rig) {
		c := &client{in: strings.NewReader(""), tty: true, sizes: make(chan api.TermSize, 1)}
		c.sizes <- api.TermSize{Width: 80, Height: 25}
		if err := r.RunInContainer(r.ctx, "ns", "p", "a", []string{"stty"}, c); err != nil || c.out.String() != "80x25 true <nil>" {
			t.Errorf("%q, %v", c.out.String(), err)
		}
	})
}

// A client that goes away ends its session, in the runtime too.
func TestClientOfASessionGoes(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	f := &fakeStreams{run: func(_ string, _ []string, in io.Reader, _, _ io.Writer, _ bool, _ <-chan remotecommandserver.TerminalSize) error {
		defer func() { ended <- struct{}{} }()
		begun <- struct{}{}
		_, err := io.Copy(io.Discard, in)
		return err
	}}
	withStreams(t, f, func(r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		in, closeInput := io.Pipe()
		defer closeInput.Close()
		done := make(chan error)
		go func() { done <- r.RunInContainer(ctx, "ns", "p", "a", []string{"cat"}, &client{in: in}) }()
		<-begun
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		_ = closeInput.Close() // as the owner of the streams does
		<-ended
	})
}

func TestSessionsThatCannotBe(t *testing.T) {
	withStreamingServer(t, &fakeStreams{run: echo}, func(r *rig) {
		run := func(pod, container string) error {
			return r.RunInContainer(r.ctx, "ns", pod, container, []string{"true"}, &client{})
		}
		attach := func(pod, container string) error { return r.AttachToContainer(r.ctx, "ns", pod, container, &client{}) }
		port := func(pod, _ string) error { return r.PortForward(r.ctx, "ns", pod, 80, nil) }
		for name, session := range map[string]func(pod, container string) error{"exec": run, "attach": attach, "port-forward": port} {
			if err := session("q", "a"); !errdefs.IsNotFound(err) {
				t.Errorf("%s: a pod that there is not: %v", name, err)
			}
		}
		for name, session := range map[string]func(pod, container string) error{"exec": run, "attach": attach} {
			if err := session("p", "b"); !errdefs.IsNotFound(err) {
				t.Errorf("%s: a container that there is not: %v", name, err)
			}
		}
		r.runtime.intercept(func(_ context.Context, call string) error {
			if strings.HasPrefix(call, "List") || strings.HasSuffix(call, "Status") {
				return nil
			}
			return status.Error(codes.Unavailable, "not now")
		})
		for says, session := range map[string]func(pod, container string) error{
			`the runtime cannot run a command in container "a"`: run,
			`the runtime cannot attach to container "a"`:        attach,
			`the runtime cannot forward to port 80`:             port,
		} {
			if err := session("p", "a"); status.Code(errors.Unwrap(err)) != codes.Unavailable || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want one that says %s", err, says)
			}
		}
		r.runtime.intercept(nil)
		r.runtime.loseSandbox(r.runtime.box())
		if err := run("p", "a"); err == nil || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("exec in a container that has ended: %v", err)
		}
		if err := port("p", ""); err == nil || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("port-forward to a pod that has lost its sandbox: %v", err)
		}
	})
}

func TestPortForward(t *testing.T) {
	f := &fakeStreams{port: func(port int32, stream io.ReadWriteCloser) error {
		if port != 80 {
			return fmt.Errorf("nobody listens on port %d", port)
		}
		_, err := io.Copy(stream, stream)
		return err
	}}
	withStreams(t, f, func(r *rig) {
		ours, peer := net.Pipe()
		done := make(chan error)
		go func() { done <- r.PortForward(r.ctx, "ns", "p", 80, peer) }()
		if _, err := io.WriteString(ours, "hello"); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, 5)
		if _, err := io.ReadFull(ours, reply); err != nil || string(reply) != "hello" {
			t.Errorf("%q, %v", reply, err)
		}
		_ = ours.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}

		// The runtime can end the stream before it is open on our side.
		for range 50 {
			ours, peer = net.Pipe()
			if err := r.PortForward(r.ctx, "ns", "p", 81, peer); err == nil || !strings.Contains(err.Error(), "nobody listens on port 81") {
				t.Errorf("a port that nobody listens on: %v", err)
			}
			_ = ours.Close()
		}
	})
}

// A client that goes away ends the connection to the port.
func TestClientOfAPortForwardGoes(t *testing.T) {
	ended := make(chan struct{})
	f := &fakeStreams{port: func(_ int32, stream io.ReadWriteCloser) error {
		defer func() { ended <- struct{}{} }()
		_, err := io.WriteString(stream, "x")
		if err == nil {
			_, err = io.Copy(io.Discard, stream)
		}
		return err
	}}
	withStreams(t, f, func(r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		ours, peer := net.Pipe()
		defer ours.Close()
		done := make(chan error)
		go func() { done <- r.PortForward(ctx, "ns", "p", 80, peer) }()
		if _, err := io.ReadFull(ours, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-ended
	})
}
