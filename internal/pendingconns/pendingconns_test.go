package pendingconns

import (
	"net"
	"net/http"
	"testing"
)

// hostConn is a connection from somewhere, over which bytes come.
type hostConn struct {
	net.Conn
	host   string
	closed bool
}

func (c *hostConn) RemoteAddr() net.Addr       { return hostAddr(c.host) }
func (c *hostConn) Read(p []byte) (int, error) { return len(p), nil }
func (c *hostConn) Close() error               { c.closed = true; return nil }

type hostAddr string

func (a hostAddr) Network() string { return "tcp" }
func (a hostAddr) String() string  { return string(a) + ":1234" }

// Connections before authentication are bounded, and those of the greediest host go
// first, the oldest before the younger ones: others are let in all the time.
func TestPendingConnectionsAreLimited(t *testing.T) {
	p := New(func(string) {})
	p.maxConns, p.maxBytes = 4, 10*minBytes
	open := func(host string) (*hostConn, net.Conn) {
		c := &hostConn{host: host}
		return c, p.accept(c)
	}
	other, _ := open("10.0.0.1")
	var hostile []*hostConn
	for range 100 {
		c, _ := open("10.6.6.6")
		hostile = append(hostile, c)
	}
	for i, c := range hostile {
		if want := i < 97; c.closed != want {
			t.Errorf("connection %d of the hostile host: closed %v", i, c.closed)
		}
	}
	if other.closed || p.conns != 4 {
		t.Errorf("the other host's: closed %v; %d are left", other.closed, p.conns)
	}

	// What was let in does not count, until its answer is complete.
	for range 20 {
		c, conn := open("10.0.0.2")
		Admit(p.Context(t.Context(), conn))
		if c.closed {
			t.Error("a connection whose request was let in was closed")
		}
	}
	if p.conns != 3 { // the first of them took a hostile one's place
		t.Errorf("%d are pending, want 3", p.conns)
	}
}

// Long headers count for what they are.
func TestPendingBytesAreLimited(t *testing.T) {
	p := New(func(string) {})
	p.maxConns, p.maxBytes = 100, 10*minBytes
	small := &hostConn{host: "10.0.0.1"}
	p.accept(small)
	large := &hostConn{host: "10.6.6.6"}
	conn := p.accept(large)
	for range 20 {
		_, _ = conn.Read(make([]byte, minBytes))
	}
	if !large.closed || small.closed {
		t.Errorf("closed are the large %v, the small %v", large.closed, small.closed)
	}
	admitted := &hostConn{host: "10.0.0.2"}
	conn = p.accept(admitted)
	Admit(p.Context(t.Context(), conn))
	for range 20 {
		_, _ = conn.Read(make([]byte, minBytes))
	}
	if admitted.closed {
		t.Error("a stream was closed for what it has sent")
	}
	p.State(conn, http.StateIdle)
	if p.conns != 2 {
		t.Errorf("%d are pending, want 2: an idle connection is", p.conns)
	}
	_ = conn.Close()
	_ = conn.Close()
	p.State(conn, http.StateActive) // late
	if p.conns != 1 || p.bytes != minBytes || len(p.hosts) != 1 {
		t.Errorf("%d with %d bytes of %d hosts are pending, want 1", p.conns, p.bytes, len(p.hosts))
	}
}
