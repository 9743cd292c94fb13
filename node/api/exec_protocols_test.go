package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const allStreams = "/exec/ns/p/c?command=x&input=1&output=1&error=1"

// script is a container that does what the first line of its input names.
func script(_ context.Context, _ []string, attach api.AttachIO) error {
	line := make([]byte, 1)
	if _, err := io.ReadFull(attach.Stdin(), line); err != nil {
		return err
	}
	rest, err := io.ReadAll(attach.Stdin())
	if err != nil {
		return err
	}
	fmt.Fprintf(attach.Stdout(), "out %s", rest)
	fmt.Fprint(attach.Stderr(), "err\r\n")
	switch line[0] {
	case 'x':
		return fmt.Errorf("wrapped: %w", exitError{17, true})
	case 'f':
		return errors.New("no such file")
	}
	return nil
}

// spdyClient is the client's end of a SPDY connection.
func spdyClient(t testing.TB, server *httptest.Server, path, protocol string) httpstream.Connection {
	t.Helper()
	conn, err := spdy.NewClientConnection(upgradeToSPDY(t, server, path, protocol))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func openStream(t testing.TB, conn httpstream.Connection, kind string) httpstream.Stream {
	t.Helper()
	stream, err := conn.CreateStream(http.Header{"Streamtype": {kind}})
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return stream
}

func TestSPDYProtocols(t *testing.T) {
	server := serveRun(t, script)
	for _, protocol := range []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"} {
		for how, want := range map[string]struct{ status, text string }{
			"ok":   {`{"metadata":{},"status":"Success"}`, ""},
			"xit":  {`"message":"17"`, "wrapped: exit status 17"},
			"fail": {`"status":"Failure"`, "no such file"},
		} {
			t.Run(protocol+"/"+how, func(t *testing.T) {
				conn := spdyClient(t, server, allStreams, protocol)
				status, stdin := openStream(t, conn, "error"), openStream(t, conn, "stdin")
				stdout, stderr := openStream(t, conn, "stdout"), openStream(t, conn, "stderr")
				fmt.Fprint(stdin, how[:1]+"a\r\nb\n")
				stdin.Close()
				results := map[string]string{}
				for name, stream := range map[string]io.Reader{"out": stdout, "err": stderr, "status": status} {
					text, err := io.ReadAll(stream)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					results[name] = string(text)
				}
				if results["out"] != "out a\r\nb\n" || results["err"] != "err\r\n" {
					t.Errorf("got %q", results)
				}
				text := want.text
				if strings.HasPrefix(protocol, "v4") {
					text = want.status
				}
				if !strings.Contains(results["status"], text) || want.text == "" && results["status"] != text {
					t.Errorf("the error stream has %q, want %q", results["status"], text)
				}
			})
		}
	}
}

// TestSPDYTerminals: versions 3 and 4 have a stream for sizes, older ones not.
func TestSPDYTerminals(t *testing.T) {
	for protocol, resizes := range map[string]bool{"v4.channel.k8s.io": true, "v3.channel.k8s.io": true, "v2.channel.k8s.io": false, "channel.k8s.io": false} {
		t.Run(protocol, func(t *testing.T) {
			server := serveRun(t, func(ctx context.Context, _ []string, attach api.AttachIO) error {
				if !resizes {
					return nil
				}
				size := within(t, attach.Resize(), "size")
				fmt.Fprint(attach.Stdout(), size)
				return nil
			})
			conn := spdyClient(t, server, "/exec/ns/p/c?command=x&output=1&tty=1&error=1", protocol)
			status, stdout := openStream(t, conn, "error"), openStream(t, conn, "stdout")
			want := ""
			if resizes {
				fmt.Fprint(openStream(t, conn, "resize"), `{"Width":3,"Height":4}`+"\n")
				want = "{3 4}"
			}
			if got, err := io.ReadAll(stdout); string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
			_, _ = io.ReadAll(status)
		})
	}
}

// channels is a client of the WebSocket protocols.
type channels struct {
	*websocket.Conn
	base64 bool
}

func (c channels) send(t testing.TB, channel byte, data string) {
	t.Helper()
	kind, message := websocket.BinaryMessage, string(channel)+data
	if c.base64 {
		kind, message = websocket.TextMessage, string('0'+channel)+base64.StdEncoding.EncodeToString([]byte(data))
	}
	if err := c.WriteMessage(kind, []byte(message)); err != nil {
		t.Fatal(err)
	}
}

// collect returns what came on each channel until the server closed.
func (c channels) collect(t testing.TB) map[byte]string {
	t.Helper()
	got := map[byte]string{}
	for {
		_, message, err := c.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("ended with %v", err)
			}
			return got
		}
		channel, data := message[0], message[1:]
		if c.base64 {
			channel -= '0'
			data = []byte(decodeBase64(t, string(data)))
		}
		got[channel] += string(data)
	}
}

func decodeBase64(t testing.TB, text string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return string(data)
}

// oneLine takes what comes first for all of its input: clients of the older
// WebSocket protocols cannot end their input.
func oneLine(_ context.Context, _ []string, attach api.AttachIO) error {
	buf := make([]byte, 100)
	n, err := attach.Stdin().Read(buf)
	fmt.Fprintf(attach.Stdout(), "out %s", buf[:n])
	fmt.Fprint(attach.Stderr(), "err\r\n")
	if err != nil || buf[0] == 'x' {
		return errors.Join(err, exitError{17, true})
	}
	return nil
}

func TestWebSocketProtocols(t *testing.T) {
	server := serveRun(t, oneLine)
	for _, protocol := range []string{
		"v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", "",
	} {
		for input, status := range map[string][2]string{
			"a\r\nb\n": {`{"metadata":{},"status":"Success"}`, ""},
			"x\r\n":    {`"message":"17"`, "command terminated with non-zero exit code: exit status 17"},
		} {
			t.Run(protocol+"/"+input[:1], func(t *testing.T) {
				conn, _, err := dialWebSocket(t, server, allStreams, protocol)
				if err != nil {
					t.Fatal(err)
				}
				if conn.Subprotocol() != protocol {
					t.Errorf("negotiated %q", conn.Subprotocol())
				}
				c := channels{conn, strings.Contains(protocol, "base64")}
				c.send(t, 0, input)
				got := c.collect(t)
				if got[1] != "out "+input || got[2] != "err\r\n" {
					t.Errorf("got %q", got)
				}
				want := status[1]
				if protocol != "" && protocol[0] == 'v' {
					want = status[0]
				}
				if !strings.Contains(got[3], want) || want == "" && got[3] != "" {
					t.Errorf("the error channel has %q, want %q", got[3], want)
				}
			})
		}
	}
}

// TestWebSocketV5ClosesStdin: version 5 can say that there is no more input.
func TestWebSocketV5ClosesStdin(t *testing.T) {
	server := serveRun(t, script)
	conn, _, err := dialWebSocket(t, server, allStreams, "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	c := channels{Conn: conn}
	c.send(t, 0, "x")
	c.send(t, 0, "more")
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte{255, 0}); err != nil {
		t.Fatal(err)
	}
	got := c.collect(t)
	var status metav1.Status
	if err := json.Unmarshal([]byte(got[3]), &status); err != nil || status.Reason != "NonZeroExitCode" || status.Details.Causes[0].Message != "17" {
		t.Errorf("status %q, %v", got[3], err)
	}
	if got[1] != "out more" {
		t.Errorf("got %q", got)
	}
}

// TestUselessMessagesAreNotLogged: the library would log each, and a client can send any
// number of them.
func TestUselessMessagesAreNotLogged(t *testing.T) {
	before := rejections.Load()
	server := serveRun(t, func(ctx context.Context, _ []string, attach api.AttachIO) error {
		within(t, attach.Resize(), "size, which comes last")
		return nil
	})
	for protocol, useless := range map[string][]string{
		"v5.channel.k8s.io":        {"\xff\x00", "\x00x", "\x00x"}, // input after the end of input
		"v4.base64.channel.k8s.io": {"0!", "0!"},
	} {
		conn, _, err := dialWebSocket(t, server, allStreams, protocol)
		if err != nil {
			t.Fatal(err)
		}
		c := channels{conn, strings.Contains(protocol, "base64")}
		for _, message := range useless {
			if err := conn.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
				t.Fatal(err)
			}
		}
		c.send(t, 4, `{"Width":1,"Height":1}`)
		if got := c.collect(t); got[3] != `{"metadata":{},"status":"Success"}` {
			t.Errorf("%s: got %q", protocol, got)
		}
	}
	forward := serveForward(t, echoPort)
	conn, _, err := dialWebSocket(t, forward, "/portForward/ns/p?port=80", "v4.base64.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte("0!")); err != nil {
		t.Fatal(err)
	}
	channels{conn, true}.send(t, 0, "echo")
	for text := ""; !strings.Contains(text, "echo"); {
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if message[0] == '0' {
			text += decodeBase64(t, string(message[1:]))
		}
	}
	if n := rejections.Load() - before; n > 0 {
		t.Errorf("%d lines", n)
	}
}

// TestOddSizes: what is no size on the channel for sizes disturbs nothing.
func TestOddSizes(t *testing.T) {
	for name, odd := range map[string]string{
		"garbage":  "}{",
		"no size":  `"` + strings.Repeat("x", 20<<10),
		"too wide": `{"Width":70000,"Height":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := serveRun(t, oneLine)
			conn, _, err := dialWebSocket(t, server, allStreams, "v5.channel.k8s.io")
			if err != nil {
				t.Fatal(err)
			}
			c := channels{Conn: conn}
			for range 10 {
				c.send(t, 4, odd)
			}
			c.send(t, 0, "input")
			if got := c.collect(t); got[1] != "out input" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestClientThatReadsSlowlyGetsItAll: the output and the exit code arrive, even
// if the process did not care for all of its input.
func TestClientThatReadsSlowlyGetsItAll(t *testing.T) {
	const size = 1_000_000
	eachWay(t, func(t *testing.T, protocol, path string) {
		server := serveRun(t, func(_ context.Context, _ []string, attach api.AttachIO) error {
			if _, err := attach.Stdin().Read(make([]byte, 1)); err != nil {
				return err
			}
			if _, err := attach.Stdout().Write(make([]byte, size)); err != nil {
				return err
			}
			return exitError{3, true}
		})
		var out slowWriter
		err := stream(testContext(t), server, protocol, path, []string{"head"}, remotecommand.StreamOptions{Stdin: zeros(4 << 20), Stdout: &out})
		if err == nil || !strings.Contains(err.Error(), "exit code 3") || out.n != size {
			t.Errorf("got %d bytes of %d, and %v", out.n, size, err)
		}
	})
}

// slowWriter takes its time before it takes the first byte.
type slowWriter struct{ n int }

func (w *slowWriter) Write(p []byte) (int, error) {
	if w.n == 0 {
		time.Sleep(100 * time.Millisecond)
	}
	w.n += len(p)
	return len(p), nil
}

// TestOneBigWrite: a provider may write more at once than a frame can hold.
func TestOneBigWrite(t *testing.T) {
	const size = 17 << 20
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			server := serveRun(t, func(_ context.Context, _ []string, attach api.AttachIO) error {
				if n, err := attach.Stdout().Write(make([]byte, size)); n != size || err != nil {
					return fmt.Errorf("wrote %d: %w", n, err)
				}
				return nil
			})
			var out slowWriter
			if err := stream(testContext(t), server, protocol, "/exec/ns/p/c", []string{"x"}, remotecommand.StreamOptions{Stdout: &out}); err != nil || out.n != size {
				t.Errorf("got %d bytes, %v", out.n, err)
			}
		})
	}
}

// TestStdinOfClientThatHasGone is not taken for complete.
func TestStdinOfClientThatHasGone(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			started, ended := make(chan struct{}), make(chan error, 1)
			server := serveRun(t, func(_ context.Context, _ []string, attach api.AttachIO) error {
				_, _ = attach.Stdin().Read(make([]byte, 1))
				close(started)
				_, err := io.Copy(io.Discard, attach.Stdin())
				ended <- err
				return nil
			})
			proxy := newCutter(t, server)
			go stream(testContext(t), proxy.server, protocol, "/exec/ns/p/c", []string{"x"}, remotecommand.StreamOptions{
				Stdin: io.MultiReader(bytes.NewReader([]byte("half")), blockedReader(t)), Stdout: io.Discard,
			})
			within(t, started, "start")
			proxy.cut(true)
			if err := within(t, ended, "end of stdin"); !errors.Is(err, context.Canceled) {
				t.Errorf("reading stdin ended with %v", err)
			}
		})
	}
}

// TestStdinOfClientThatClosesItsWebSocket is not taken for complete, either.
func TestStdinOfClientThatClosesItsWebSocket(t *testing.T) {
	ended := make(chan error, 1)
	server := serveRun(t, func(_ context.Context, _ []string, attach api.AttachIO) error {
		_, err := io.Copy(io.Discard, attach.Stdin())
		ended <- err
		return nil
	})
	for _, protocol := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		for range 5 {
			conn, _, err := dialWebSocket(t, server, allStreams, protocol)
			if err != nil {
				t.Fatal(err)
			}
			channels{conn, strings.Contains(protocol, "base64")}.send(t, 0, "half")
			if err := conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")); err != nil {
				t.Fatal(err)
			}
			if err := within(t, ended, "end of stdin"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: reading stdin ended with %v", protocol, err)
			}
		}
	}
}

// TestStdinThatIsBrokenOff is not taken for complete: SPDY has resets for that, which
// client-go sends when it is cancelled. The library shows them as the end of the stream.
func TestStdinThatIsBrokenOff(t *testing.T) {
	for name, end := range map[string]func(conn httpstream.Connection, stdin httpstream.Stream){
		"stream":     func(_ httpstream.Connection, stdin httpstream.Stream) { _ = stdin.Reset() },
		"connection": func(conn httpstream.Connection, _ httpstream.Stream) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			started, ended := make(chan struct{}), make(chan [2]error, 1)
			server := serveRun(t, func(ctx context.Context, _ []string, attach api.AttachIO) error {
				_, _ = io.ReadFull(attach.Stdin(), make([]byte, len("half")))
				close(started)
				_, err := io.Copy(io.Discard, attach.Stdin())
				ended <- [2]error{err, ctx.Err()}
				return nil
			})
			conn := spdyClient(t, server, "/exec/ns/p/c?command=x&input=1", "v4.channel.k8s.io")
			_, stdin := openStream(t, conn, "error"), openStream(t, conn, "stdin")
			fmt.Fprint(stdin, "half")
			within(t, started, "start")
			end(conn, stdin)
			errs := within(t, ended, "end of stdin")
			if !errors.Is(errs[0], context.Canceled) || errs[1] == nil {
				t.Errorf("reading stdin ended with %v, and the context with %v", errs[0], errs[1])
			}
		})
	}
}

// TestStdinThatIsResetAfterItsEnd is complete.
func TestStdinThatIsResetAfterItsEnd(t *testing.T) {
	sent := make(chan struct{})
	server := serveRun(t, func(ctx context.Context, _ []string, attach api.AttachIO) error {
		within(t, sent, "reset of the client")
		text, err := io.ReadAll(attach.Stdin())
		if string(text) != "all" || err != nil || ctx.Err() != nil {
			t.Errorf("stdin has %q, %v, and the context %v", text, err, ctx.Err())
		}
		return nil
	})
	raw := upgradeToSPDY(t, server, "/exec/ns/p/c?command=x&input=1", "v4.channel.k8s.io")
	conn, err := spdy.NewClientConnection(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	status, stdin := openStream(t, conn, "error"), openStream(t, conn, "stdin")
	fmt.Fprint(stdin, "all")
	_ = stdin.Close()
	// The library's client has no reset for a stream that it has closed.
	if _, err := raw.Write([]byte{0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, byte(stdin.Identifier()), 0, 0, 0, 5}); err != nil {
		t.Fatal(err)
	}
	close(sent)
	if text, err := io.ReadAll(status); string(text) != `{"metadata":{},"status":"Success"}` {
		t.Errorf("got %q, %v", text, err)
	}
}
