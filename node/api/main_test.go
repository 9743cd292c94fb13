package api_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func TestMain(m *testing.M) {
	klog.SetLogger(funcr.New(func(_, line string) { // what the libraries say of broken connections
		if strings.Contains(line, "rejected") || strings.Contains(line, "Unable to write frame") {
			rejections.Add(1)
		}
	}, funcr.Options{}))
	code := m.Run()
	if err := leaks(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// rejections counts what the libraries log about streams and messages that they cannot use.
var rejections atomic.Int32

// leaks is goleak.Find with more patience: the SPDY library holds on to a
// failed Close for a second.
func leaks(more ...goleak.Option) (err error) {
	for range 10 {
		err = goleak.Find(append(more,
			// client-go's own WebSocket client leaves these behind when it is cancelled.
			goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
			goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*stream).Read"),
			goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*wsStreamExecutor).StreamWithContext.func1"),
		)...)
		if err == nil {
			return nil
		}
	}
	return err
}

// deadline is how long an event may take before a test fails: a busy machine is no failure.
const deadline = 2 * time.Minute

// within returns what comes from events, or fails the test.
func within[T any](t *testing.T, events <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-events:
		return v
	case <-time.After(deadline):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func servePods(t testing.TB, p api.PodHandlerConfig) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	api.AttachPodRoutes(p, mux, true)
	return serve(t, mux)
}

// serveTLS is servePods as kube-apiserver has it.
func serveTLS(t testing.TB, p api.PodHandlerConfig) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	api.AttachPodRoutes(p, mux, true)
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // handshakes that tests break off
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func restConfig(server *httptest.Server) *restclient.Config {
	// Insecure, so that connections by way of another address work too.
	return &restclient.Config{Host: server.URL, TLSClientConfig: restclient.TLSClientConfig{Insecure: server.TLS != nil}}
}

// dialRaw connects to server, and lets the connection end with the test.
func dialRaw(t testing.TB, server *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server.TLS != nil {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(deadline))
	return conn
}

// dialWebSocket upgrades to a WebSocket protocol; none if it is empty.
func dialWebSocket(t testing.TB, server *httptest.Server, path, protocol string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if protocol != "" {
		dialer.Subprotocols = []string{protocol}
	}
	conn, resp, err := dialer.Dial(strings.Replace(server.URL, "http", "ws", 1)+path, nil)
	if err == nil {
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(deadline))
	}
	return conn, resp, err
}

func urlOf(t testing.TB, server *httptest.Server, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

type reply struct {
	*http.Response
	body string
}

func do(t *testing.T, server *httptest.Server, method, path string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := *server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v after %q", method, path, err, body)
	}
	return reply{resp, string(body)}
}

func (r reply) want(t *testing.T, status int, part string) {
	t.Helper()
	if r.StatusCode != status || !strings.Contains(r.body, part) {
		t.Errorf("%s %s: got %d %q, want %d with %q", r.Request.Method, r.Request.URL, r.StatusCode, r.body, status, part)
	}
}

// canTellHangUps: see the package's hungUp.
const canTellHangUps = runtime.GOOS == "linux"
