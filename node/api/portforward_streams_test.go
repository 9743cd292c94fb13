package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// openForward opens a stream of a port-forward. An empty id is that of clients
// of long ago.
func openForward(t testing.TB, conn httpstream.Connection, kind, port, id string) httpstream.Stream {
	t.Helper()
	stream, err := tryForward(conn, kind, port, id)
	if err != nil {
		t.Fatalf("%s stream for port %s: %v", kind, port, err)
	}
	return stream
}

func tryForward(conn httpstream.Connection, kind, port, id string) (httpstream.Stream, error) {
	header := http.Header{}
	for name, value := range map[string]string{"Streamtype": kind, "Port": port, "Requestid": id} {
		if value != "" {
			header.Set(name, value)
		}
	}
	return conn.CreateStream(header)
}

func echoPort(_ context.Context, port int32, stream io.ReadWriteCloser) error {
	fmt.Fprintf(stream, "%d:", port)
	_, err := io.Copy(stream, stream)
	return err
}

// wantEcho uses a connection that echoPort is at the other end of.
func wantEcho(t *testing.T, data httpstream.Stream, port string) {
	t.Helper()
	fmt.Fprint(data, "a\r\nb\n")
	data.Close()
	if got, err := io.ReadAll(data); err != nil || string(got) != port+":a\r\nb\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func dialForward(t *testing.T, how string, forward forwardFunc, options ...func(*api.PodHandlerConfig)) httpstream.Connection {
	t.Helper()
	return dialServer(t, how, serveForward(t, forward, options...))
}

func dialServer(t *testing.T, how string, server *httptest.Server) httpstream.Connection {
	t.Helper()
	dialer, err := dialers[how](t, server, urlOf(t, server, "/portForward/ns/p"))
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := dialer.Dial("portforward.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestPortForwardStreams(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		conn := dialForward(t, how, echoPort)

		for _, bad := range [][2]string{{"error", ""}, {"data", "0"}, {"data", "65536"}, {"data", "-1"}, {"error", "80x"}, {"", "80"}, {"odd", "80"}} {
			if _, err := tryForward(conn, bad[0], bad[1], "bad"); err == nil {
				t.Errorf("a stream of type %q and port %q was accepted", bad[0], bad[1])
			}
		}

		// Streams that are not a pair yet: in any order, and with others between.
		data1, errs2 := openForward(t, conn, "data", "1", "one"), openForward(t, conn, "error", "2", "two")
		data2, errs1 := openForward(t, conn, "data", "2", "two"), openForward(t, conn, "error", "1", "one")
		wantEcho(t, data1, "1")
		wantEcho(t, data2, "2")
		for _, errs := range []io.Reader{errs1, errs2} {
			if text, err := io.ReadAll(errs); len(text) != 0 || err != nil {
				t.Errorf("error stream: %q, %v", text, err)
			}
		}

		// Clients that know no request IDs; and an ID that is used again.
		for range 2 {
			_ = openForward(t, conn, "error", "3", "")
			wantEcho(t, openForward(t, conn, "data", "3", ""), "3")
			_ = openForward(t, conn, "error", "4", "one")
			wantEcho(t, openForward(t, conn, "data", "4", "one"), "4")
		}
	})
}

// TestManyForwardsAtOnce: 500 connections to two ports over one session.
func TestManyForwardsAtOnce(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		conn := dialForward(t, how, echoPort)
		var clients sync.WaitGroup
		for i := range 500 {
			clients.Go(func() {
				id, port := fmt.Sprint(i), []string{"80", "8080"}[i%2]
				errs, err := tryForward(conn, "error", port, id)
				if err != nil {
					t.Error(err)
					return
				}
				data, err := tryForward(conn, "data", port, id)
				if err != nil {
					t.Error(err)
					return
				}
				wantEcho(t, data, port)
				if text, err := io.ReadAll(errs); len(text) != 0 || err != nil {
					t.Errorf("error stream: %q, %v", text, err)
				}
			})
		}
		clients.Wait()
	})
}

// TestPortForwardWithOneStream: the other one does not come.
func TestPortForwardWithOneStream(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		// A slow machine has opened two streams by then.
		conn := dialForward(t, how, echoPort, func(c *api.PodHandlerConfig) { c.StreamCreationTimeout = 3 * time.Second })
		errs, data := openForward(t, conn, "error", "80", "1"), openForward(t, conn, "data", "80", "2")
		if text, err := io.ReadAll(errs); !strings.Contains(string(text), "timed out waiting for the data stream") {
			t.Errorf("error stream: %q, %v", text, err)
		}
		if text, err := io.ReadAll(data); len(text) != 0 || err != nil {
			t.Errorf("data stream: %q, %v", text, err)
		}
		// The session goes on.
		_ = openForward(t, conn, "error", "80", "3")
		wantEcho(t, openForward(t, conn, "data", "80", "3"), "80")
	})
}

// TestPortForwardWithTwoStreamsOfAKind: one of them is closed, either one, and the other still gets its data stream.
func TestPortForwardWithTwoStreamsOfAKind(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		conn := dialForward(t, how, echoPort)
		closed := make(chan string, 2)
		for range 2 {
			errs := openForward(t, conn, "error", "80", "1")
			go func() {
				text, err := io.ReadAll(errs)
				closed <- fmt.Sprint(string(text), err)
			}()
		}
		if got := within(t, closed, "end of one of two error streams"); got != "<nil>" {
			t.Errorf("the one too many: %s", got)
		}
		wantEcho(t, openForward(t, conn, "data", "80", "1"), "80")
		if got := within(t, closed, "end of the other error stream"); got != "<nil>" {
			t.Errorf("the one with data: %s", got)
		}
	})
}

// TestPortForwardToClientThatResets: a write to a stream that the client has
// reset fails, rather than going on for ever.
func TestPortForwardToClientThatResets(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		ended := make(chan error, 1)
		conn := dialForward(t, how, func(_ context.Context, _ int32, stream io.ReadWriteCloser) error {
			_, err := io.Copy(stream, zeros(1<<40))
			ended <- err
			return err
		})
		failures := openForward(t, conn, "error", "80", "1")
		data := openForward(t, conn, "data", "80", "1")
		if _, err := io.ReadFull(data, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		_ = data.Reset()
		if err := within(t, ended, "end of the provider"); err == nil {
			t.Error("no error")
		}
		// kubectl would end all other connections if it got an error.
		if text, err := io.ReadAll(failures); err != nil || len(text) > 0 {
			t.Errorf("the error stream says %q, %v", text, err)
		}
	})
}

// TestPortForwardThatIsBrokenOff: a client that resets a connection has not sent all that
// it wanted to, unless the provider has closed the connection before, as kubectl waits for.
func TestPortForwardThatIsBrokenOff(t *testing.T) {
	const late, early = "80", "81"
	eachDialer(t, func(t *testing.T, how string) {
		started, ended := make(chan struct{}), make(chan [2]error, 1)
		conn := dialForward(t, how, func(ctx context.Context, port int32, stream io.ReadWriteCloser) error {
			if fmt.Sprint(port) == late {
				_ = stream.Close()
			}
			started <- struct{}{}
			_, err := io.Copy(io.Discard, stream)
			ended <- [2]error{err, ctx.Err()}
			return err
		})
		for port, want := range map[string]error{late: nil, early: context.Canceled} {
			failures, data := openForward(t, conn, "error", port, port), openForward(t, conn, "data", port, port)
			within(t, started, "start of the provider")
			_ = data.Reset()
			if errs := within(t, ended, "end of the provider"); !errors.Is(errs[0], want) || !errors.Is(errs[1], want) {
				t.Errorf("port %s: %v, and the context has %v; want %v", port, errs[0], errs[1], want)
			}
			// kubectl would end all other connections if it got an error.
			if text, err := io.ReadAll(failures); err != nil || len(text) > 0 {
				t.Errorf("port %s: the error stream says %q, %v", port, text, err)
			}
		}
	})
}

// TestPortForwardOfClientThatHasGone: a provider that only reads can
// distinguish a client that has gone from one that has sent all it wanted to.
func TestPortForwardOfClientThatHasGone(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		started, results := make(chan struct{}), make(chan error, 1)
		proxy := newCutter(t, serveForward(t, func(_ context.Context, _ int32, stream io.ReadWriteCloser) error {
			started <- struct{}{}
			_, err := io.Copy(io.Discard, stream)
			results <- err
			return nil
		}))
		conn := dialServer(t, how, proxy.server)
		open := func(id string) httpstream.Stream {
			_ = openForward(t, conn, "error", "80", id)
			data := openForward(t, conn, "data", "80", id)
			within(t, started, "start of the provider")
			fmt.Fprint(data, "data")
			return data
		}
		open("1").Close()
		if err := within(t, results, "end of the first"); err != nil {
			t.Errorf("all was sent, and then: %v", err)
		}
		open("2")
		proxy.cut(true)
		if err := within(t, results, "end of the second"); !errors.Is(err, context.Canceled) {
			t.Errorf("the client has gone, and then: %v", err)
		}
	})
}

func TestPortForwardOverOldBase64WebSocket(t *testing.T) {
	server := serveForward(t, echoPort)
	conn, _, err := dialWebSocket(t, server, "/portForward/ns/p?port=80", "v4.base64.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	c := channels{conn, true}
	c.send(t, 0, "a\r\n")
	var got string
	for len(got) < len("P\x0080:a\r\n") {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if message[0] == '0' {
			got += decodeBase64(t, string(message[1:]))
		}
		if kind != 1 {
			t.Errorf("a message of type %d", kind)
		}
	}
	if got != "P\x0080:a\r\n" {
		t.Errorf("got %q", got)
	}
}
