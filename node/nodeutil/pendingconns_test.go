package nodeutil

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/virtual-kubelet/virtual-kubelet/log"
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
	p := newPendingConns(t.Context())
	p.maxConns, p.maxBytes = 4, 10*minPendingBytes
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
		admit(p.context(t.Context(), conn))
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
	p := newPendingConns(t.Context())
	p.maxConns, p.maxBytes = 100, 10*minPendingBytes
	small := &hostConn{host: "10.0.0.1"}
	p.accept(small)
	large := &hostConn{host: "10.6.6.6"}
	conn := p.accept(large)
	for range 20 {
		_, _ = conn.Read(make([]byte, minPendingBytes))
	}
	if !large.closed || small.closed {
		t.Errorf("closed are the large %v, the small %v", large.closed, small.closed)
	}
	admitted := &hostConn{host: "10.0.0.2"}
	conn = p.accept(admitted)
	admit(p.context(t.Context(), conn))
	for range 20 {
		_, _ = conn.Read(make([]byte, minPendingBytes))
	}
	if admitted.closed {
		t.Error("a stream was closed for what it has sent")
	}
	p.state(conn, http.StateIdle)
	if p.conns != 2 {
		t.Errorf("%d are pending, want 2: an idle connection is", p.conns)
	}
	_ = conn.Close()
	_ = conn.Close()
	p.state(conn, http.StateActive) // late
	if p.conns != 1 || p.bytes != minPendingBytes || len(p.hosts) != 1 {
		t.Errorf("%d with %d bytes of %d hosts are pending, want 1", p.conns, p.bytes, len(p.hosts))
	}
}

// What anybody can have logged is short, and not much of it.
func TestLinesAboutRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &lines{}
		ctx := log.WithLogger(t.Context(), logged)
		writer := serverLog(ctx).Writer()
		for range 1000 {
			_, _ = io.WriteString(writer, "http: TLS handshake error from 10.0.0.1:1: "+strings.Repeat("x", 10_000)+"\n")
		}
		if n := len(logged.texts); n != quietLogBurst {
			t.Errorf("%d lines of 1000 were logged at once, want %d", n, quietLogBurst)
		}
		refused := newQuietLog()
		refused.warn(ctx, "Refused", log.Fields{"uri": strings.Repeat("é", 1000), "error": errors.New(strings.Repeat("y", 1000)), "status": 403})
		for _, text := range logged.texts {
			if len(text) > 3*maxLoggedText {
				t.Fatalf("a line has %d bytes: %s", len(text), text)
			}
		}
	})
}

// lines is a logger that keeps its lines, with their fields.
type lines struct {
	log.Logger
	texts  []string
	parent *lines
	fields string
}

func (l *lines) WithFields(fields log.Fields) log.Logger {
	next := &lines{parent: l, fields: l.fields}
	for key, value := range fields {
		next.fields += " " + key + "="
		if text, ok := value.(string); ok {
			next.fields += text
		}
	}
	return next
}
func (l *lines) WithField(key string, value any) log.Logger {
	return l.WithFields(log.Fields{key: value})
}
func (l *lines) Warn(args ...any) { l.Info(args...) }
func (l *lines) Info(args ...any) {
	root := l
	for root.parent != nil {
		root = root.parent
	}
	text, _ := args[0].(string)
	root.texts = append(root.texts, text+l.fields)
}
