package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// protocols are those of kubectl and kube-apiserver.
var protocols = map[string]func(*httptest.Server, *url.URL) (remotecommand.Executor, error){
	"spdy": func(s *httptest.Server, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(restConfig(s), "POST", u)
	},
	"websocket": func(s *httptest.Server, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(restConfig(s), "GET", u.String())
	},
}

type runFunc = func(ctx context.Context, cmd []string, attach api.AttachIO) error

// serveRun serves run at /exec and /attach.
func serveRun(t testing.TB, run runFunc, options ...func(*api.PodHandlerConfig)) *httptest.Server {
	t.Helper()
	config := api.PodHandlerConfig{
		RunInContainer: func(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
			if namespace != "ns" || pod != "p" || container != "c" {
				return fmt.Errorf("asked for %s/%s/%s", namespace, pod, container)
			}
			return run(ctx, cmd, attach)
		},
		AttachToContainer: func(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
			if namespace != "ns" || pod != "p" || container != "c" {
				return fmt.Errorf("asked for %s/%s/%s", namespace, pod, container)
			}
			return run(ctx, nil, attach)
		},
	}
	for _, o := range options {
		o(&config)
	}
	return serveTLS(t, config)
}

func execQuery(cmd []string, o remotecommand.StreamOptions) string {
	q := url.Values{"command": cmd}
	for name, on := range map[string]bool{"input": o.Stdin != nil, "output": o.Stdout != nil, "error": o.Stderr != nil, "tty": o.Tty} {
		if on {
			q.Set(name, "1")
		}
	}
	return "?" + q.Encode()
}

func stream(ctx context.Context, server *httptest.Server, protocol, path string, cmd []string, o remotecommand.StreamOptions) error {
	u, err := url.Parse(server.URL + path + execQuery(cmd, o))
	if err != nil {
		return err
	}
	executor, err := protocols[protocol](server, u)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, o)
}

// eachWay runs test by each protocol for both exec and attach.
func eachWay(t *testing.T, test func(t *testing.T, protocol, path string)) {
	for protocol := range protocols {
		for _, path := range []string{"/exec/ns/p/c", "/exec/ns/p/some-uid/c", "/attach/ns/p/c", "/attach/ns/p/some-uid/c"} {
			t.Run(protocol+path, func(t *testing.T) { test(t, protocol, path) })
		}
	}
}

func TestExecEchoes(t *testing.T) {
	eachWay(t, func(t *testing.T, protocol, path string) {
		server := serveRun(t, func(_ context.Context, cmd []string, attach api.AttachIO) error {
			if want := []string{"tr", "a b", ""}; strings.HasPrefix(path, "/exec") && !slices.Equal(cmd, want) {
				return fmt.Errorf("the command is %q", cmd)
			}
			if attach.TTY() {
				return errors.New("nobody asked for a TTY")
			}
			fmt.Fprint(attach.Stderr(), "to stderr\r\n")
			_, err := io.Copy(attach.Stdout(), attach.Stdin())
			return err
		})
		input := strings.Repeat("all the bytes \x00\xff\r\n", 20000)
		var stdout, stderr bytes.Buffer
		err := stream(testContext(t), server, protocol, path, []string{"tr", "a b", ""}, remotecommand.StreamOptions{
			Stdin: strings.NewReader(input), Stdout: &stdout, Stderr: &stderr,
		})
		if err != nil {
			t.Fatal(err)
		}
		if stdout.String() != input || stderr.String() != "to stderr\r\n" {
			t.Errorf("got %d bytes of %d, and %q", stdout.Len(), len(input), stderr.String())
		}
	})
}

func TestExecHasOnlyTheStreamsAskedFor(t *testing.T) {
	for protocol := range protocols {
		for name, o := range map[string]remotecommand.StreamOptions{
			"stdout": {Stdout: io.Discard},
			"stderr": {Stderr: io.Discard},
			"stdin":  {Stdin: strings.NewReader("")},
			"tty":    {Stdout: io.Discard, Tty: true},
		} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				server := serveRun(t, func(_ context.Context, _ []string, attach api.AttachIO) error {
					if got := (attach.Stdin() != nil); got != (o.Stdin != nil) {
						return fmt.Errorf("stdin: %t", got)
					}
					if got := (attach.Stdout() != nil); got != (o.Stdout != nil) {
						return fmt.Errorf("stdout: %t", got)
					}
					if got := (attach.Stderr() != nil); got != (o.Stderr != nil) {
						return fmt.Errorf("stderr: %t", got)
					}
					if attach.TTY() != o.Tty || attach.Resize() == nil {
						return fmt.Errorf("tty: %t, resize: %v", attach.TTY(), attach.Resize())
					}
					return nil
				})
				if err := stream(testContext(t), server, protocol, "/exec/ns/p/c", []string{"x"}, o); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// exitError has just the two methods that an exit code needs.
type exitError struct {
	code   int
	exited bool
}

func (e exitError) Error() string   { return fmt.Sprintf("exit status %d", e.code) }
func (e exitError) ExitStatus() int { return e.code }
func (e exitError) Exited() bool    { return e.exited }

func TestExecExitCodes(t *testing.T) {
	eachWay(t, func(t *testing.T, protocol, path string) {
		for name, c := range map[string]struct {
			err  error
			code int // or else the message
			msg  string
		}{
			"plain":       {utilexec.CodeExitError{Err: errors.New("command failed"), Code: 3}, 3, "command failed"},
			"client's":    {clientexec.CodeExitError{Err: errors.New("command failed"), Code: 137}, 137, "command failed"},
			"wrapped":     {fmt.Errorf("in the pod: %w", exitError{42, true}), 42, "in the pod: exit status 42"},
			"joined":      {errors.Join(errors.New("copy failed"), exitError{7, true}), 7, "copy failed"},
			"not exited":  {exitError{9, false}, 0, "exit status 9"},
			"other":       {errors.New("no such container"), 0, "no such container"},
			"no message":  {utilexec.CodeExitError{Code: 1}, 1, "CodeExitError"},
			"exit code 0": {fmt.Errorf("fine: %w", exitError{0, true}), 0, ""},
			"no error":    {nil, 0, ""},
			"context's":   {context.Canceled, 0, "context canceled"},
		} {
			server := serveRun(t, func(context.Context, []string, api.AttachIO) error { return c.err })
			err := stream(testContext(t), server, protocol, path, []string{"x"}, remotecommand.StreamOptions{Stdout: io.Discard})
			var exit clientexec.CodeExitError
			switch {
			case c.msg == "":
				if err != nil {
					t.Errorf("%s: got %v", name, err)
				}
			case c.code != 0:
				if !errors.As(err, &exit) || exit.Code != c.code {
					t.Errorf("%s: got %#v, want exit code %d", name, err, c.code)
				}
			case err == nil || errors.As(err, &exit) || !strings.Contains(err.Error(), c.msg):
				t.Errorf("%s: got %#v, want an error with %q", name, err, c.msg)
			}
		}
	})
}

// A failure has the kubelet's words for exec or attach once, also where a provider passes on what a kubelet
// or a runtime has sent.
func TestFailuresNameWhatFailedOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, protocol, path string) {
		want := "Internal error occurred: error executing command in container: no such file"
		if strings.HasPrefix(path, "/attach") {
			want = "Internal error occurred: error attaching to container: no such file"
		}
		for _, says := range []string{
			"no such file",
			"Internal error occurred: error executing command in container: no such file",
			"Internal error occurred: error attaching to container: no such file",
		} {
			server := serveRun(t, func(context.Context, []string, api.AttachIO) error { return errors.New(says) })
			err := stream(testContext(t), server, protocol, path, []string{"x"}, remotecommand.StreamOptions{Stdout: io.Discard})
			if err == nil || err.Error() != want {
				t.Errorf("a provider that fails with %q: %v, want %s", says, err, want)
			}
		}
	})
}

func TestExecOfPanickingProvider(t *testing.T) {
	eachWay(t, func(t *testing.T, protocol, path string) {
		server := serveRun(t, func(context.Context, []string, api.AttachIO) error { panic("not today") })
		err := stream(testContext(t), server, protocol, path, []string{"x"}, remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "provider panicked") || strings.Contains(err.Error(), "not today") {
			t.Errorf("got %v", err)
		}
	})
}

type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestExecResizes(t *testing.T) {
	eachWay(t, func(t *testing.T, protocol, path string) {
		resizeOf := make(chan (<-chan api.TermSize), 1)
		done := make(chan struct{})
		server := serveRun(t, func(ctx context.Context, _ []string, attach api.AttachIO) error {
			if !attach.TTY() || attach.Stderr() != nil {
				return errors.New("no TTY")
			}
			resizeOf <- attach.Resize()
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		queue := make(sizes, 1)
		queue <- remotecommand.TerminalSize{Width: 80, Height: 24}
		result := make(chan error, 1)
		go func() {
			result <- stream(testContext(t), server, protocol, path, []string{"sh"}, remotecommand.StreamOptions{
				Stdout: io.Discard, Tty: true, TerminalSizeQueue: queue,
			})
		}()
		resize := within(t, resizeOf, "start of the provider")
		if size := within(t, resize, "first size"); size != (api.TermSize{Width: 80, Height: 24}) {
			t.Errorf("got %+v", size)
		}
		queue <- remotecommand.TerminalSize{Width: 200, Height: 50}
		if size := within(t, resize, "second size"); size != (api.TermSize{Width: 200, Height: 50}) {
			t.Errorf("got %+v", size)
		}
		// Sizes that nobody takes hold up nothing.
		for i := range 20 {
			queue <- remotecommand.TerminalSize{Width: uint16(i), Height: 1}
		}
		close(queue)
		close(done)
		if err := within(t, result, "end of the session"); err != nil {
			t.Error(err)
		}
		for {
			if _, ok := <-resize; !ok {
				break
			}
		}
	})
}

// blockedReader is the keyboard of somebody who does not type.
func blockedReader(t *testing.T) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r
}

func TestClientThatHasGoneEndsTheContext(t *testing.T) {
	for name, c := range map[string]struct {
		options   func(t *testing.T) remotecommand.StreamOptions
		readStdin bool
	}{
		"no input": {options: func(*testing.T) remotecommand.StreamOptions {
			return remotecommand.StreamOptions{Stdout: io.Discard}
		}},
		"silent input": {options: func(t *testing.T) remotecommand.StreamOptions {
			return remotecommand.StreamOptions{Stdin: blockedReader(t), Stdout: io.Discard}
		}},
		"read input": {readStdin: true, options: func(t *testing.T) remotecommand.StreamOptions {
			return remotecommand.StreamOptions{Stdin: blockedReader(t), Stdout: io.Discard}
		}},
		"unread input": {options: func(t *testing.T) remotecommand.StreamOptions {
			return remotecommand.StreamOptions{Stdin: strings.NewReader(strings.Repeat("unread", 10000)), Stdout: io.Discard}
		}},
		"terminal": {options: func(t *testing.T) remotecommand.StreamOptions {
			return remotecommand.StreamOptions{Stdin: blockedReader(t), Stdout: io.Discard, Tty: true}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, protocol, path string) {
				started, ended := make(chan struct{}), make(chan error, 1)
				server := serveRun(t, func(ctx context.Context, _ []string, attach api.AttachIO) error {
					close(started)
					if c.readStdin {
						// A provider that does not look at its context.
						_, err := io.Copy(io.Discard, attach.Stdin())
						ended <- err
						return nil
					}
					<-ctx.Done()
					ended <- ctx.Err()
					return ctx.Err()
				})
				ctx, cancel := context.WithCancel(testContext(t))
				result := make(chan error, 1)
				go func() { result <- stream(ctx, server, protocol, path, []string{"x"}, c.options(t)) }()
				within(t, started, "start of the provider")
				cancel()
				if err := within(t, ended, "end of the provider's context"); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				within(t, result, "end of the client")
			})
		})
	}
}

func TestExecWithoutStreamsOrUpgrade(t *testing.T) {
	server := serveRun(t, func(context.Context, []string, api.AttachIO) error { return nil })
	for _, path := range []string{"/exec/ns/p/c", "/attach/ns/p/c"} {
		do(t, server, "POST", path+"?command=x").want(t, 400, "you must specify at least 1 of stdin, stdout, stderr")
		do(t, server, "POST", path+"?command=x&tty=1&error=1").want(t, 400, "you must specify at least 1")
		do(t, server, "GET", path+"?command=x&output=1").want(t, 500, "Upgrade request required")
		do(t, server, "POST", strings.Replace(path, "ns", "NS", 1)+"?command=x&output=1").want(t, 400, "invalid namespace")
	}
}

// TestExecCreationTimeout: a client that upgrades and then opens no streams is
// let go.
func TestExecCreationTimeout(t *testing.T) {
	server := serveRun(t, func(context.Context, []string, api.AttachIO) error {
		t.Error("the provider was called")
		return nil
	}, func(c *api.PodHandlerConfig) { c.StreamCreationTimeout = 10 * time.Millisecond })
	conn := upgradeToSPDY(t, server, "/exec/ns/p/c?command=x&output=1", "v4.channel.k8s.io")
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
}

// TestIdleTimeout: a session that nobody uses ends.
func TestIdleTimeout(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			ended := make(chan struct{})
			server := serveRun(t, func(ctx context.Context, _ []string, _ api.AttachIO) error {
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			}, func(c *api.PodHandlerConfig) { c.StreamIdleTimeout = idleTimeout })
			go stream(testContext(t), server, protocol, "/exec/ns/p/c", []string{"x"}, remotecommand.StreamOptions{Stdout: io.Discard})
			within(t, ended, "idle timeout")
		})
	}
}

// TestOlderWebSocketProtocols: browsers and old clients.
func TestOlderWebSocketProtocols(t *testing.T) {
	for _, protocol := range []string{"v4.channel.k8s.io", "channel.k8s.io"} {
		t.Run(protocol, func(t *testing.T) {
			ended := make(chan struct{})
			server := serveRun(t, func(ctx context.Context, cmd []string, attach api.AttachIO) error {
				if cmd[0] == "fail" {
					return exitError{5, true}
				}
				if attach.Stderr() != nil || attach.Stdin() != nil {
					return errors.New("streams that nobody asked for")
				}
				fmt.Fprint(attach.Stdout(), "hello")
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			})
			dial := func(command string) *websocket.Conn {
				conn, resp, err := dialWebSocket(t, server, "/exec/ns/p/c?output=1&command="+command, protocol)
				if err != nil {
					t.Fatal(err, resp)
				}
				return conn
			}
			next := func(conn *websocket.Conn) (channel byte, data string) {
				for {
					_, message, err := conn.ReadMessage()
					if err != nil {
						t.Fatal(err)
					}
					if len(message) > 1 {
						return message[0], string(message[1:])
					}
				}
			}
			conn := dial("wait")
			if channel, data := next(conn); channel != 1 || data != "hello" {
				t.Errorf("got %q on channel %d", data, channel)
			}
			conn.Close()
			within(t, ended, "end of the provider's context")

			channel, data := next(dial("fail"))
			if channel != 3 {
				t.Errorf("got %q on channel %d", data, channel)
			}
			if strings.HasPrefix(protocol, "v4") {
				var status metav1.Status
				if err := json.Unmarshal([]byte(data), &status); err != nil || status.Details == nil || status.Details.Causes[0].Message != "5" {
					t.Errorf("got %q, %v", data, err)
				}
			}
		})
	}
}

var _ http.Handler = api.HandleContainerExec(nil, api.WithExecStreamIdleTimeout(time.Hour), api.WithExecStreamCreationTimeout(time.Minute))
