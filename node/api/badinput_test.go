package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const (
	spdyUpgrade      = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
	forwardUpgrade   = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n"
	webSocketUpgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	v5Upgrade        = webSocketUpgrade + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
	tunnelUpgrade    = webSocketUpgrade + "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n"
)

// ask sends a request as it is; no client library tidies it up.
func ask(t testing.TB, server *httptest.Server, requestLine, headers string) (*http.Response, net.Conn) {
	t.Helper()
	conn := dialRaw(t, server)
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\n%s\r\n", requestLine, headers); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", requestLine, err)
	}
	return resp, conn
}

// unreachable is a provider that must not be called.
func unreachable(t testing.TB) api.PodHandlerConfig {
	return api.PodHandlerConfig{
		GetContainerLogs: func(_ context.Context, ns, pod, c string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
			t.Errorf("logs of %q %q %q", ns, pod, c)
			return nil, nil
		},
		RunInContainer: func(_ context.Context, ns, pod, c string, cmd []string, _ api.AttachIO) error {
			t.Errorf("exec in %q %q %q of %q", ns, pod, c, cmd)
			return nil
		},
		AttachToContainer: func(_ context.Context, ns, pod, c string, _ api.AttachIO) error {
			t.Errorf("attach to %q %q %q", ns, pod, c)
			return nil
		},
		PortForward: func(_ context.Context, ns, pod string, port int32, _ io.ReadWriteCloser) error {
			t.Errorf("port-forward to %q %q %d", ns, pod, port)
			return nil
		},
	}
}

// TestNamesThatAreNone reach no provider: they would become file names there.
func TestNamesThatAreNone(t *testing.T) {
	server := servePods(t, unreachable(t))
	for _, name := range []string{
		"..", ".", "%2e%2e", "%2E", ".%2e", "..%2f..%2fetc", "%2F", "a%2Fb", "a%5Cb", "..%5C..", "%00", "a%00", "a%0Ab", "%ff",
		"A", "-a", "a-", "a_b", "a%20b", "a:b", "a*", "~", "%C3%A4", strings.Repeat("a", 254), strings.Repeat("a", 5000),
	} {
		for _, path := range []string{
			"/containerLogs/%s/p/c", "/containerLogs/ns/%s/c", "/containerLogs/ns/p/%s",
			"/exec/%s/p/c", "/exec/ns/%s/c", "/exec/ns/p/%s", "/exec/ns/p/uid/%s",
			"/attach/%s/p/c", "/attach/ns/%s/c", "/attach/ns/p/%s", "/attach/ns/p/uid/%s",
			"/portForward/%s/p", "/portForward/ns/%s", "/portForward/%s/p/uid", "/portForward/ns/%s/uid",
		} {
			upgrade := spdyUpgrade
			switch {
			case strings.HasPrefix(path, "/portForward"):
				upgrade = forwardUpgrade
			case strings.HasPrefix(path, "/containerLogs"):
				upgrade = ""
			}
			resp, conn := ask(t, server, "GET "+fmt.Sprintf(path, name)+"?command=x&output=1", upgrade)
			conn.Close()
			// A path with dots is redirected to a clean one by net/http.
			if status := resp.StatusCode; status != 400 && status != 404 && status != http.StatusTemporaryRedirect {
				t.Errorf("%s: got %s", fmt.Sprintf(path, name), resp.Status)
			}
		}
	}
}

// TestBadUpgrades get an answer that says so, and reach no provider.
func TestBadUpgrades(t *testing.T) {
	server := servePods(t, unreachable(t))
	const exec, forward = "/exec/ns/p/c?command=x&output=1", "/portForward/ns/p"
	for _, c := range []struct {
		request, headers string
		status           int
	}{
		{"GET " + exec, "Connection: Upgrade\r\nUpgrade: h2c\r\n", 400},
		{"GET " + exec, "Connection: Upgrade\r\n", 400},
		{"POST " + exec, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v9.channel.k8s.io\r\n", 403},
		{"POST " + exec, spdyUpgrade + "Content-Length: 5\r\n", 400},
		{"POST " + exec, spdyUpgrade + "Transfer-Encoding: chunked\r\n", 400},
		{"POST " + exec, spdyUpgrade + "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 100000\r\n", 400},
		{"POST /exec/ns/p/c?output=1", spdyUpgrade, 400},
		{"POST /exec/ns/p/c?command=x", spdyUpgrade, 400},
		{"POST /exec/ns/p/c?command=x&output=true", spdyUpgrade, 400},
		{"POST /exec/ns/p/c?command=%zz&output=1", spdyUpgrade, 400},
		{"POST /exec/ns/p/c?command=x;output=1", spdyUpgrade, 400},
		{"POST /attach/ns/p/c?output=1&x=%zz", spdyUpgrade, 400},
		{"GET " + exec, webSocketUpgrade + "Sec-WebSocket-Protocol: v9.channel.k8s.io\r\n", 403},
		{"GET " + exec, strings.Replace(v5Upgrade, "Version: 13", "Version: 1", 1), 400},
		{"GET " + exec, strings.Replace(v5Upgrade, "Sec-WebSocket-Key", "X", 1), 400},
		{"GET " + forward, "Connection: Upgrade\r\nUpgrade: h2c\r\n", 400},
		{"POST " + forward, spdyUpgrade, 403},
		{"POST " + forward, forwardUpgrade + "Content-Length: 5\r\n", 400},
		{"GET " + forward, webSocketUpgrade, 400},
		{"GET " + forward + "?port=%zz", webSocketUpgrade, 400},
		{"GET " + forward + "?port=80", webSocketUpgrade + "Sec-WebSocket-Protocol: SPDY/3.1+v4.channel.k8s.io\r\n", 403},
		{"GET " + forward, strings.Replace(tunnelUpgrade, "Version: 13", "Version: 1", 1), 400},
		{"GET " + forward, strings.Replace(tunnelUpgrade, "Sec-WebSocket-Key", "X", 1), 400},
	} {
		resp, conn := ask(t, server, c.request, c.headers)
		if resp.StatusCode != c.status {
			t.Errorf("%s\n%s: got %s, want %d", c.request, c.headers, resp.Status, c.status)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%s\n%s: %v", c.request, c.headers, err)
		}
		if bytes.Contains(body, []byte("goroutine")) {
			t.Errorf("%s: %s", c.request, body)
		}
		conn.Close()
	}
}

// TestHalfOpenUpgrades: a client that opens none or only some of its streams
// gets an error, where that is possible, and is disconnected.
func TestHalfOpenUpgrades(t *testing.T) {
	check := noLeaks(t)
	t.Run("", func(t *testing.T) {
		config := unreachable(t)
		config.StreamCreationTimeout = 2 * time.Second // a slow machine has opened some of them by then
		server := serveTLS(t, config)
		opened := map[string][]string{"none": {}, "the error stream": {"error"}, "all but the error stream": {"stdout", "stdin"}}
		conns, streams := map[string]httpstream.Connection{}, map[string][]httpstream.Stream{}
		for name, kinds := range opened {
			conns[name] = spdyClient(t, server, "/exec/ns/p/c?command=x&input=1&output=1", "v4.channel.k8s.io")
			for _, kind := range kinds {
				streams[name] = append(streams[name], openStream(t, conns[name], kind))
			}
		}
		for name, conn := range conns {
			for i, stream := range streams[name] {
				text, err := io.ReadAll(stream)
				if opened[name][i] == "error" && !strings.Contains(string(text), "timed out waiting for the client to create streams") {
					t.Errorf("got %q, %v", text, err)
				}
			}
			within(t, conn.CloseChan(), "end of the connection with "+name)
		}
	})
	check()
}

// TestHalfOpenClientThatHasGone is not waited for.
func TestHalfOpenClientThatHasGone(t *testing.T) {
	check := noLeaks(t)
	t.Run("", func(t *testing.T) {
		server := serveTLS(t, unreachable(t))
		upgradeToSPDY(t, server, "/exec/ns/p/c?command=x&output=1", "v4.channel.k8s.io").Close()
		upgradeToSPDY(t, server, "/portForward/ns/p", "portforward.k8s.io").Close()
	})
	check()
}

// recording is a connection that keeps what is written to it.
type recording struct {
	net.Conn
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *recording) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.buf.Write(p)
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// record returns the bytes that a SPDY client sends.
func record(t testing.TB, server *httptest.Server, path, protocol string, client func(httpstream.Connection)) []byte {
	t.Helper()
	r := &recording{Conn: upgradeToSPDY(t, server, path, protocol)}
	conn, err := spdy.NewClientConnection(r)
	if err != nil {
		t.Fatal(err)
	}
	client(conn)
	r.mu.Lock()
	sent := bytes.Clone(r.buf.Bytes())
	r.mu.Unlock()
	_ = conn.Close()
	return sent
}

// endpoints are ways to a streaming handler, and what well-behaved clients send
// there.
type endpoint struct {
	name, request, upgrade string
	frames                 []byte
}

func endpoints(t testing.TB, server *httptest.Server) []endpoint {
	const exec, forward = "/exec/ns/p/c?command=x&input=1&output=1&tty=1", "/portForward/ns/p"
	execFrames := record(t, server, exec, "v4.channel.k8s.io", func(conn httpstream.Connection) {
		var streams []httpstream.Stream
		for _, kind := range []string{"error", "stdin", "stdout", "resize", "stderr", "stdout", "odd"} {
			if stream, err := conn.CreateStream(http.Header{"Streamtype": {kind}}); err == nil {
				streams = append(streams, stream)
			}
		}
		for _, stream := range streams { // also where nobody reads
			fmt.Fprint(stream, "{}")
		}
	})
	forwardFrames := record(t, server, forward, "portforward.k8s.io", func(conn httpstream.Connection) {
		var streams []httpstream.Stream
		for i := range 40 {
			for j, kind := range []string{"error", "data", "data"} {
				stream, err := conn.CreateStream(http.Header{"Streamtype": {kind}, "Port": {"80"}, "Requestid": {fmt.Sprint(i)}})
				if err != nil {
					continue
				}
				if j == 1 { // and let it come back, so that the next one is not taken for this one
					fmt.Fprint(stream, "data")
					_, _ = io.ReadFull(stream, make([]byte, 4))
				}
				if i%3 == 0 {
					_ = stream.Reset()
				} else {
					go io.Copy(io.Discard, stream)
					streams = append(streams, stream)
				}
			}
		}
		for _, stream := range streams { // also where nobody reads
			fmt.Fprint(stream, "data")
		}
	})
	masked := func(message string) []byte { // a binary WebSocket message, its mask zero
		return append([]byte{0x82, 0x80 | byte(len(message)), 0, 0, 0, 0}, message...)
	}
	return []endpoint{
		{"exec by SPDY", "POST " + exec, spdyUpgrade, execFrames},
		{"port-forward by SPDY", "POST " + forward, forwardUpgrade, forwardFrames},
		{"exec by WebSocket", "GET " + exec, v5Upgrade, slices.Concat(masked("\x00input"), masked("\x04{}"), masked("\xff\x00"))},
		{"port-forward by tunnel", "GET " + forward, tunnelUpgrade, masked(string(forwardFrames[:100]))},
		{"port-forward by old WebSocket", "GET " + forward + "?port=80,81", webSocketUpgrade, slices.Concat(masked("\x00data"), masked("\x02data"))},
	}
}

// careless is a provider whose functions read all, and look at nothing.
func careless() api.PodHandlerConfig {
	run := func(attach api.AttachIO) error {
		_, err := io.Copy(attach.Stdout(), attach.Stdin())
		return err
	}
	return api.PodHandlerConfig{
		RunInContainer: func(_ context.Context, _, _, _ string, _ []string, attach api.AttachIO) error {
			return run(attach)
		},
		AttachToContainer: func(_ context.Context, _, _, _ string, attach api.AttachIO) error { return run(attach) },
		PortForward: func(_ context.Context, _, _ string, _ int32, stream io.ReadWriteCloser) error {
			_, err := io.Copy(stream, stream)
			return err
		},
		GetContainerLogs: noLogs,
	}
}

// TestClientsThatGoInTheMiddle leave nothing behind, wherever that is.
func TestClientsThatGoInTheMiddle(t *testing.T) {
	check := noLeaks(t)
	t.Run("", func(t *testing.T) {
		server := serveTLS(t, careless())
		for _, e := range endpoints(t, server) {
			for i := range 20 {
				_, conn := ask(t, server, e.request, e.upgrade)
				_, _ = conn.Write(e.frames[:len(e.frames)*(i+1)/20])
				conn.Close()
			}
		}
	})
	check()
}

// TestGarbageFrames disturb nobody and leave nothing behind.
func TestGarbageFrames(t *testing.T) {
	check := noLeaks(t)
	t.Run("", func(t *testing.T) {
		server := serveTLS(t, careless())
		random := rand.New(rand.NewPCG(1, 2))
		for _, e := range endpoints(t, server) {
			for i := range 40 {
				garbage := bytes.Clone(e.frames)
				for range 1 + i/4 {
					garbage[random.IntN(len(garbage))] = byte(random.Uint32())
				}
				if i%4 == 0 {
					for j := range garbage {
						garbage[j] = byte(random.Uint32())
					}
				}
				_, conn := ask(t, server, e.request, e.upgrade)
				_, _ = conn.Write(garbage)
				do(t, server, "GET", "/containerLogs/ns/p/c").want(t, 200, "")
				conn.Close()
			}
		}
	})
	check()
}
