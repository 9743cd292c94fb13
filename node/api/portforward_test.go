package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// upgradeToSPDY returns a connection that has been upgraded, and nothing more.
func upgradeToSPDY(t testing.TB, server *httptest.Server, path, protocol string) net.Conn {
	t.Helper()
	conn := dialRaw(t, server)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\nContent-Length: 0\r\n\r\n", path, protocol)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %s", resp.Status)
	}
	return conn
}

// dialers are those of kubectl: SPDY, and SPDY inside a WebSocket.
var dialers = map[string]func(testing.TB, *httptest.Server, *url.URL) (httpstream.Dialer, error){
	"spdy": func(t testing.TB, s *httptest.Server, u *url.URL) (httpstream.Dialer, error) {
		roundTripper, upgrader, err := spdy.RoundTripperFor(restConfig(s))
		if err != nil {
			return nil, err
		}
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, "POST", u), nil
	},
	"websocket": func(t testing.TB, s *httptest.Server, u *url.URL) (httpstream.Dialer, error) {
		return portforward.NewSPDYOverWebsocketDialerForStreaming(u, restConfig(s))
	},
}

type forwardFunc = func(ctx context.Context, port int32, stream io.ReadWriteCloser) error

func serveForward(t testing.TB, forward forwardFunc, options ...func(*api.PodHandlerConfig)) *httptest.Server {
	t.Helper()
	config := api.PodHandlerConfig{
		PortForward: func(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
			if namespace != "ns" || pod != "p" {
				return fmt.Errorf("asked for %s/%s", namespace, pod)
			}
			return forward(ctx, port, stream)
		},
	}
	for _, o := range options {
		o(&config)
	}
	return serveTLS(t, config)
}

// forwarding is a client's port-forward.
type forwarding struct {
	ports  []portforward.ForwardedPort
	errors *lockedbuffer.Buffer
	stop   func()
}

func forward(t testing.TB, server *httptest.Server, how, path string, ports ...string) forwarding {
	t.Helper()
	dialer, err := dialers[how](t, server, urlOf(t, server, path))
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	errs := &lockedbuffer.Buffer{}
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, ports, stop, ready, io.Discard, errs)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("ended before it was ready: %v", err)
	case <-time.After(deadline):
		t.Fatal("timed out")
	}
	got, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	stopOnce := sync.OnceFunc(func() { close(stop); <-ended })
	t.Cleanup(stopOnce)
	return forwarding{got, errs, stopOnce}
}

func (f forwarding) dial(t testing.TB, i int) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.ports[i].Local))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(deadline))
	return conn.(*net.TCPConn)
}

func eachDialer(t *testing.T, test func(t *testing.T, how string)) {
	for how := range dialers {
		t.Run(how, func(t *testing.T) { test(t, how) })
	}
}

func TestPortForwardOfManyConnections(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		server := serveForward(t, func(_ context.Context, port int32, stream io.ReadWriteCloser) error {
			fmt.Fprintf(stream, "port %d\n", port)
			_, err := io.Copy(stream, stream)
			return err
		})
		f := forward(t, server, how, "/portForward/ns/p/some-uid", "0:80", "0:8080")
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				conn := f.dial(t, i%2)
				lines := bufio.NewReader(conn)
				if got, err := lines.ReadString('\n'); err != nil || got != fmt.Sprintf("port %d\n", []int{80, 8080}[i%2]) {
					t.Errorf("got %q, %v", got, err)
				}
				sent := bytes.Repeat([]byte{byte(i), '\r', '\n', 0}, 50000)
				go func() {
					_, _ = conn.Write(sent)
					_ = conn.CloseWrite()
				}()
				if got, err := io.ReadAll(lines); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("got %d bytes of %d, %v", len(got), len(sent), err)
				}
			})
		}
		clients.Wait()
		if got := f.errors.String(); got != "" {
			t.Errorf("errors: %s", got)
		}
	})
}

func TestPortForwardErrors(t *testing.T) {
	for name, c := range map[string]struct {
		forward forwardFunc
		want    string
	}{
		"error": {func(context.Context, int32, io.ReadWriteCloser) error { return errors.New("connection refused") }, "connection refused"},
		"panic": {func(context.Context, int32, io.ReadWriteCloser) error { panic("not today") }, "provider panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			eachDialer(t, func(t *testing.T, how string) {
				server := serveForward(t, c.forward)
				dialer, err := dialers[how](t, server, urlOf(t, server, "/portForward/ns/p"))
				if err != nil {
					t.Fatal(err)
				}
				conn, _, err := dialer.Dial("portforward.k8s.io")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				open := func(kind, port, id string) (httpstream.Stream, error) {
					return conn.CreateStream(http.Header{"Streamtype": {kind}, "Port": {port}, "Requestid": {id}})
				}
				errs, err := open("error", "80", "0")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := open("data", "80", "0"); err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(errs)
				if err != nil || !strings.Contains(string(got), c.want) || !strings.Contains(string(got), "port 80") {
					t.Errorf("got %q, %v", got, err)
				}
			})
		})
	}
}

// TestPortForwardOfServerThatCloses: a provider that returns while its client
// still sends does not hold up the other connections.
func TestPortForwardOfServerThatCloses(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		server := serveForward(t, func(_ context.Context, port int32, stream io.ReadWriteCloser) error {
			_, err := io.WriteString(stream, "bye")
			return err
		})
		f := forward(t, server, how, "/portForward/ns/p", "0:80")
		for range 20 { // more than the library has workers
			conn := f.dial(t, 0)
			_, _ = conn.Write(bytes.Repeat([]byte("unread"), 10000))
			if got, err := io.ReadAll(conn); string(got) != "bye" {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	})
}

func TestClientThatHasGoneEndsItsForwards(t *testing.T) {
	eachDialer(t, func(t *testing.T, how string) {
		const connections = 6
		started, ended := make(chan string, connections), make(chan string, connections)
		server := serveForward(t, func(ctx context.Context, _ int32, stream io.ReadWriteCloser) error {
			kind := make([]byte, 1)
			_, _ = io.ReadFull(stream, kind)
			started <- string(kind)
			if string(kind) == "r" { // does not look at its context
				_, _ = io.Copy(io.Discard, stream)
			} else { // does not read
				<-ctx.Done()
			}
			ended <- string(kind)
			return nil
		})
		f := forward(t, server, how, "/portForward/ns/p", "0:80", "0:81")
		for i := range connections {
			// Unread input may hold up connections that come later: SPDY as the
			// library has it knows no flow control. So that one comes last.
			kind := "r"
			if i == connections-1 {
				kind = "w" + strings.Repeat("unread", 20000)
			}
			_, _ = io.WriteString(f.dial(t, i%2), kind)
			within(t, started, "start of the provider")
		}
		f.stop()
		for range connections {
			within(t, ended, "end of the provider")
		}
	})
}

func TestPortForwardRequests(t *testing.T) {
	server := serveForward(t, func(context.Context, int32, io.ReadWriteCloser) error { return nil })
	do(t, server, "GET", "/portForward/ns/p").want(t, 500, "Upgrade request required")
	do(t, server, "GET", "/portForward/ns/P").want(t, 400, "invalid pod")

	many := strings.TrimSuffix(strings.Repeat("1,", 128), ",")
	for _, query := range []string{"", "?port=", "?port=x", "?port=0", "?port=-1", "?port=65536", "?port=80,x", "?port=" + many} {
		conn, resp, err := dialWebSocket(t, server, "/portForward/ns/p"+query, "v4.channel.k8s.io")
		if err == nil {
			conn.Close()
			t.Errorf("%q was accepted", query)
		} else if resp == nil || resp.StatusCode != 400 {
			t.Errorf("%q: got %v, %v", query, resp, err)
		}
	}
}

func TestPortForwardOverOldWebSocket(t *testing.T) {
	ended := make(chan int32, 2)
	server := serveForward(t, func(ctx context.Context, port int32, stream io.ReadWriteCloser) error {
		if port == 82 {
			return errors.New("refused")
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(stream, buf); err != nil {
			return err
		}
		_, _ = stream.Write(buf)
		<-ctx.Done()
		ended <- port
		return nil
	})
	conn, _, err := dialWebSocket(t, server, "/portForward/ns/p?port=80&port=82,81", "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, message := range []string{"\x00first", "\x04third"} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for len(got) < 9 { // the ports on six channels, two answers, one error
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(message))
	}
	for _, want := range []string{"\x00P\x00", "\x04Q\x00", "\x00first", "\x04third"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if !slices.ContainsFunc(got, func(m string) bool { return m[0] == 3 && strings.Contains(m, "refused") }) {
		t.Errorf("no error in %q", got)
	}
	conn.Close()
	within(t, ended, "end of the provider")
	within(t, ended, "end of the provider")
}

var _ http.Handler = api.HandlePortForward(nil, api.WithPortForwardStreamIdleTimeout(time.Hour), api.WithPortForwardCreationTimeout(time.Minute))
