package api_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// cutter is a proxy between client and server whose connections a test can cut.
type cutter struct {
	server *httptest.Server // the server, by way of the proxy
	mu     sync.Mutex
	conns  []*net.TCPConn // to the server
	all    []net.Conn
}

func newCutter(t testing.TB, server *httptest.Server) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{server: &httptest.Server{
		URL:      strings.Replace(server.URL, server.Listener.Addr().String(), listener.Addr().String(), 1),
		Listener: listener,
		TLS:      server.TLS,
	}}
	var copies sync.WaitGroup
	copies.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				client.Close()
				return
			}
			c.mu.Lock()
			c.conns = append(c.conns, conn.(*net.TCPConn))
			c.all = append(c.all, client, conn)
			c.mu.Unlock()
			copies.Go(func() { io.Copy(client, conn) })
			copies.Go(func() { io.Copy(conn, client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		c.close()
		copies.Wait()
	})
	return c
}

// close ends all connections.
func (c *cutter) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		conn.Close()
	}
}

// cut ends the connections to the server: abruptly as when a process is killed
// with unread data, or else cleanly. The protocols above get no word in.
func (c *cutter) cut(abruptly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if abruptly {
			_ = conn.SetLinger(0)
		}
		conn.Close()
	}
}

// transports are all the ways to a provider's function. Each starts a client
// that calls ready when it has its connection, and stays until that has gone.
var transports = map[string]func(ctx context.Context, t *testing.T, server *httptest.Server, ready func()){
	"logs": func(ctx context.Context, t *testing.T, server *httptest.Server, ready func()) {
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/containerLogs/ns/p/c?follow=true", nil)
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer transport.CloseIdleConnections()
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		ready()
		_, _ = io.Copy(io.Discard, resp.Body)
	},
	"exec by SPDY":                  execClient("spdy", "/exec/ns/p/c"),
	"exec by WebSocket":             execClient("websocket", "/exec/ns/p/c"),
	"attach by SPDY":                execClient("spdy", "/attach/ns/p/c"),
	"attach by WebSocket":           execClient("websocket", "/attach/ns/p/c"),
	"exec by old WebSocket":         webSocketClient("/exec/ns/p/c?command=x&input=1&output=1", "v4.channel.k8s.io"),
	"exec by base64":                webSocketClient("/exec/ns/p/c?command=x&input=1&output=1", "v4.base64.channel.k8s.io"),
	"port-forward by SPDY":          forwardClient("spdy"),
	"port-forward by tunnel":        forwardClient("websocket"),
	"port-forward by old WebSocket": webSocketClient("/portForward/ns/p?port=80", "v4.channel.k8s.io"),
}

// readyWriter calls ready when the provider has sent something.
type readyWriter func()

func (w readyWriter) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func execClient(protocol, path string) func(context.Context, *testing.T, *httptest.Server, func()) {
	return func(ctx context.Context, t *testing.T, server *httptest.Server, ready func()) {
		_ = stream(ctx, server, protocol, path, []string{"x"}, remotecommand.StreamOptions{Stdin: blockedReader(t), Stdout: readyWriter(ready)})
	}
}

func webSocketClient(path, protocol string) func(context.Context, *testing.T, *httptest.Server, func()) {
	return func(ctx context.Context, t *testing.T, server *httptest.Server, ready func()) {
		conn, _, err := dialWebSocket(t, server, path, protocol)
		if err != nil {
			t.Error(err)
			return
		}
		ready()
		for err == nil {
			_, _, err = conn.ReadMessage()
		}
	}
}

func forwardClient(how string) func(context.Context, *testing.T, *httptest.Server, func()) {
	return func(ctx context.Context, t *testing.T, server *httptest.Server, ready func()) {
		dialer, err := dialers[how](t, server, urlOf(t, server, "/portForward/ns/p"))
		if err != nil {
			t.Error(err)
			return
		}
		conn, _, err := dialer.Dial("portforward.k8s.io")
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for _, kind := range []string{"error", "data"} {
			if _, err := conn.CreateStream(http.Header{"Streamtype": {kind}, "Port": {"80"}, "Requestid": {"0"}}); err != nil {
				t.Error(err)
				return
			}
		}
		ready()
		select {
		case <-conn.CloseChan():
		case <-ctx.Done():
		}
	}
}

// waiting is a provider whose functions only wait for the end of their context.
func waiting(started chan<- struct{}, ended chan<- error) api.PodHandlerConfig {
	wait := func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	run := func(ctx context.Context, attach api.AttachIO) error {
		fmt.Fprint(attach.Stdout(), "ready")
		return wait(ctx)
	}
	return api.PodHandlerConfig{
		GetContainerLogs: func(ctx context.Context, _, _, _ string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
			return &waitingLog{ctx, wait}, nil
		},
		RunInContainer: func(ctx context.Context, _, _, _ string, _ []string, attach api.AttachIO) error {
			return run(ctx, attach)
		},
		AttachToContainer: func(ctx context.Context, _, _, _ string, attach api.AttachIO) error { return run(ctx, attach) },
		PortForward:       func(ctx context.Context, _, _ string, _ int32, _ io.ReadWriteCloser) error { return wait(ctx) },
	}
}

type waitingLog struct {
	ctx  context.Context
	wait func(context.Context) error
}

func (l *waitingLog) Read([]byte) (int, error) { return 0, l.wait(l.ctx) }
func (l *waitingLog) Close() error             { return nil }

// noLeaks fails the test if it leaves more goroutines than there were.
func noLeaks(t *testing.T) (check func()) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		if err := leaks(before); err != nil {
			t.Error(err)
		}
	}
}

// session is a client of one transport.
type session struct {
	ended <-chan error // the provider's context
	stop  func()
}

// startSession returns when both client and provider are there.
func startSession(t *testing.T, name string, config func(*api.PodHandlerConfig)) (session, *cutter) {
	t.Helper()
	started, ended, ready := make(chan struct{}, 1), make(chan error, 1), make(chan struct{})
	provider := waiting(started, ended)
	config(&provider)
	proxy := newCutter(t, serveTLS(t, provider))
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		transports[name](ctx, t, proxy.server, sync.OnceFunc(func() { close(ready) }))
	}()
	within(t, started, "start of the provider of "+name)
	within(t, ready, "start of the client of "+name)
	return session{ended, func() {
		cancel()
		proxy.close()
		within(t, done, "end of the client")
	}}, proxy
}

// TestContextEndsWithTheConnection: on every transport, however it ends.
func TestContextEndsWithTheConnection(t *testing.T) {
	for name := range transports {
		for _, abruptly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/abruptly=%t", name, abruptly), func(t *testing.T) {
				check := noLeaks(t)
				t.Run("", func(t *testing.T) { // ends before the check
					s, proxy := startSession(t, name, func(*api.PodHandlerConfig) {})
					proxy.cut(abruptly)
					if err := within(t, s.ended, "end of the context"); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					s.stop()
				})
				check()
			})
		}
	}
}

// idleTimeout is longer than a slow machine needs between two steps of the start
// of a session.
const idleTimeout = 2 * time.Second

// TestIdleTimeouts: on every transport a session that nobody uses ends. Logs are
// none: they may well be silent for days.
func TestIdleTimeouts(t *testing.T) {
	check := noLeaks(t)
	t.Run("", func(t *testing.T) {
		sessions := map[string]session{}
		for name := range transports {
			if name != "logs" {
				sessions[name], _ = startSession(t, name, func(c *api.PodHandlerConfig) { c.StreamIdleTimeout = idleTimeout })
			}
		}
		for name, s := range sessions {
			within(t, s.ended, "end of the context of "+name)
			s.stop()
		}
	})
	check()
}

// TestContextEndsWithMuchUnread: the provider does not take its input, of which
// there is more than anybody here would buffer.
func TestContextEndsWithMuchUnread(t *testing.T) {
	if !canTellHangUps {
		t.Skip("the operating system does not tell")
	}
	for _, c := range []struct {
		protocol string
		size     int64
		abruptly bool
	}{
		{"spdy", 1 << 40, true},
		{"websocket", 1 << 40, true},
		{"websocket", 100 << 10, false}, // the little that is left is in the operating system's buffers
	} {
		t.Run(fmt.Sprintf("%s/abruptly=%t", c.protocol, c.abruptly), func(t *testing.T) {
			started, ended := make(chan struct{}, 1), make(chan error, 1)
			proxy := newCutter(t, serveTLS(t, waiting(started, ended)))
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			input := io.MultiReader(zeros(c.size), blockedReader(t))
			go stream(ctx, proxy.server, c.protocol, "/exec/ns/p/c", []string{"x"}, remotecommand.StreamOptions{Stdin: input, Stdout: io.Discard})
			within(t, started, "start of the provider")
			select {
			case <-ended:
				t.Fatal("too early")
			case <-time.After(500 * time.Millisecond): // until all buffers are full
			}
			proxy.cut(c.abruptly)
			within(t, ended, "end of the context")
		})
	}
}

// TestShutdownEndsStuckSessions: when the server's context ends, so do sessions
// whose client does not read and whose provider does not look.
func TestShutdownEndsStuckSessions(t *testing.T) {
	endless := func(w io.Writer) error {
		_, err := io.Copy(w, zeros(1<<50))
		return err
	}
	for name, session := range map[string]string{
		"exec":         "GET /exec/ns/p/c?command=x&output=1",
		"port-forward": "GET /portForward/ns/p?port=80",
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			base, shutdown := context.WithCancel(t.Context())
			handler := api.PodHandler(api.PodHandlerConfig{
				RunInContainer: func(_ context.Context, _, _, _ string, _ []string, attach api.AttachIO) error {
					err := endless(attach.Stdout())
					ended <- err
					return err
				},
				PortForward: func(_ context.Context, _, _ string, _ int32, stream io.ReadWriteCloser) error {
					err := endless(stream)
					ended <- err
					return err
				},
			}, false)
			server := httptest.NewUnstartedServer(handler)
			server.Config.BaseContext = func(net.Listener) context.Context { return base }
			server.StartTLS()
			defer server.Close()
			ask(t, server, session, webSocketUpgrade)
			select {
			case err := <-ended:
				t.Fatalf("too early: %v", err)
			case <-time.After(200 * time.Millisecond): // until all buffers are full
			}
			shutdown()
			if err := within(t, ended, "end of the provider"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
