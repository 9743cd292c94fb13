// Package pendingconns bounds the connections of an HTTP server that anybody can open: those without a
// request that was let in.
package pendingconns

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

const (
	// Max is how many connections may wait for a request to be let in.
	Max = 1024
	// maxBytes is how much they may have sent.
	maxBytes = 32 << 20
	// minBytes is what each counts for at least: its buffers.
	minBytes = 16 << 10
)

// Conns are the connections without a request that was let in: those whose
// handshake or headers are not complete, whose caller is being authenticated, and
// those that are idle. Any client that reaches the port can open them, so their number
// and size are bounded: beyond that the oldest one of the host with the most is
// closed. That of a caller that gets on with it is among the youngest. It is safe for
// concurrent use.
type Conns struct {
	maxConns, maxBytes int
	closes             func(remote string)

	mu    sync.Mutex
	hosts map[string]*host
	conns int
	bytes int
}

// host is where connections come from.
type host struct {
	conns list.List // of *conn, the oldest first
	bytes int
}

// New returns what closes is called by, for each connection that is closed since too many wait, with the
// host that it is from. Anybody can cause that.
func New(closes func(remote string)) *Conns {
	return &Conns{maxConns: Max, maxBytes: maxBytes, closes: closes, hosts: map[string]*host{}}
}

// Listener takes what a listener accepts as pending. The server has State and Context as its ConnState
// and ConnContext. TLS may be above it.
func (p *Conns) Listener(l net.Listener) net.Listener { return listener{l, p} }

type listener struct {
	net.Listener
	pending *Conns
}

func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.pending.accept(accepted), nil
}

// Waiting is how many connections wait.
func (p *Conns) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// accept takes a connection as pending.
func (p *Conns) accept(accepted net.Conn) net.Conn {
	from, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
	if err != nil {
		from = accepted.RemoteAddr().String()
	}
	c := &conn{Conn: accepted, all: p, host: from}
	c.wait()
	return c
}

// change runs f, and then closes connections until the rest is within the limits.
func (p *Conns) change(f func()) {
	p.mu.Lock()
	f()
	var closing []*conn
	for p.conns > p.maxConns || p.bytes > p.maxBytes {
		c := p.oldestOfGreediest()
		c.remove()
		closing = append(closing, c)
	}
	p.mu.Unlock()
	for _, c := range closing {
		p.closes(c.host)
		_ = c.Conn.Close()
	}
}

func (p *Conns) oldestOfGreediest() *conn {
	var greediest *host
	for _, h := range p.hosts {
		if greediest == nil || h.bytes > greediest.bytes {
			greediest = h
		}
	}
	return greediest.conns.Front().Value.(*conn)
}

// State is an http.Server's ConnState.
func (p *Conns) State(served net.Conn, state http.ConnState) {
	if c := below(served); c != nil {
		switch state {
		case http.StateActive, http.StateIdle:
			c.wait()
		case http.StateHijacked:
			c.admit()
		}
	}
}

// Context is an http.Server's ConnContext, for Admit to find the connection.
func (p *Conns) Context(ctx context.Context, served net.Conn) context.Context {
	if c := below(served); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

type connKey struct{}

// Admit says that a request was let in: its connection does not count as pending
// until the answer is complete.
func Admit(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.admit()
	}
}

// Stay returns a context by which Admit does nothing: the request is answered
// without its sender being known.
func Stay(ctx context.Context) context.Context {
	return context.WithValue(ctx, connKey{}, nil)
}

// below returns the connection below TLS.
func below(served net.Conn) *conn {
	for served != nil {
		if c, ok := served.(*conn); ok {
			return c
		}
		over, ok := served.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		served = over.NetConn()
	}
	return nil
}

// conn is a connection that may be pending.
type conn struct {
	net.Conn
	all  *Conns
	host string

	// By the lock of all.
	place  *list.Element // nil if it is not pending
	bytes  int           // what it counts for
	closed bool
}

// NetConn is for callers that need the socket.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.all.change(func() { c.grow(n) })
	}
	return n, err
}

func (c *conn) Close() error {
	c.all.change(func() {
		c.remove()
		c.closed = true
	})
	return c.Conn.Close()
}

func (c *conn) wait()  { c.all.change(c.add) }
func (c *conn) admit() { c.all.change(c.remove) }

// add, remove and grow are called with the lock.
func (c *conn) add() {
	if c.place != nil || c.closed {
		return
	}
	from := c.all.hosts[c.host]
	if from == nil {
		from = &host{}
		c.all.hosts[c.host] = from
	}
	c.place = from.conns.PushBack(c)
	c.bytes = minBytes
	from.bytes += c.bytes
	c.all.bytes += c.bytes
	c.all.conns++
}

func (c *conn) remove() {
	if c.place == nil {
		return
	}
	from := c.all.hosts[c.host]
	from.conns.Remove(c.place)
	from.bytes -= c.bytes
	if from.conns.Len() == 0 {
		delete(c.all.hosts, c.host)
	}
	c.all.bytes -= c.bytes
	c.all.conns--
	c.place, c.bytes = nil, 0
}

func (c *conn) grow(n int) {
	if c.place == nil {
		return
	}
	c.bytes += n
	c.all.hosts[c.host].bytes += n
	c.all.bytes += n
}
