package nodeutil

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// knowsNobody is an Auth that refuses all.
type knowsNobody struct{ noAuth }

func (knowsNobody) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return nil, false, nil
}

// serveHealth serves /healthz to everybody, as a node does, and returns the listener.
func serveHealth(t *testing.T) *tlsListener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	config, err := completeTLS(nil, "vk", nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := listenTLS(ctx, "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	routes := []api.Route{{Pattern: "/healthz", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })}}
	handler := WithAuthExceptHealth(knowsNobody{}, newRequestMetrics().counting(routes, api.RoutesHandler(routes)))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, handler) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.(*tlsListener)
}

// Everybody may ask for the node's health, but that makes nobody known: a connection
// on which the request's body never comes counts as one that waits, and so can be
// closed for others.
func TestAnonymousHealthRequestsStayPending(t *testing.T) {
	listener := serveHealth(t)
	const n = 5
	for range n {
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: vk\r\n\r\nGET /healthz HTTP/1.1\r\nHost: vk\r\nContent-Length: 9\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the first answer
			t.Fatal(err)
		}
	}
	// The second request has come with the first, and is not answered without its body.
	time.Sleep(50 * time.Millisecond)
	if got := listener.pending.Waiting(); got != n {
		t.Errorf("%d of %d connections count as waiting", got, n)
	}
}

// A body that does not come ends the connection, also of an authorized client.
func TestBodiesHaveToCome(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	conn := &deadlineConn{Conn: server}
	listener := &oneConn{conn: conn, closed: make(chan struct{})}
	left := make(chan time.Duration, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, listener, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			left <- time.Until(conn.last)
			_, _ = io.Copy(io.Discard, r.Body)
		}))
	}()
	if _, err := io.WriteString(client, "POST /stats/summary HTTP/1.1\r\nHost: vk\r\nContent-Length: 9\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-left; got <= 0 || got > bodyTimeout {
		t.Errorf("the connection has %v to send the body, want %v", got, bodyTimeout)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// deadlineConn keeps its last read deadline, for the server's goroutine.
type deadlineConn struct {
	net.Conn
	last time.Time
}

func (c *deadlineConn) SetReadDeadline(at time.Time) error {
	c.last = at
	return c.Conn.SetReadDeadline(at)
}
