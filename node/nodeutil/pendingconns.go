package nodeutil

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// maxPendingConns is how many connections may wait for a request to be let in.
	maxPendingConns = 1024
	// maxPendingBytes is how much they may have sent.
	maxPendingBytes = 32 << 20
	// minPendingBytes is what each counts for at least: its buffers.
	minPendingBytes = 16 << 10
)

// pendingConns are the connections without a request that was let in: those whose
// handshake or headers are not complete, whose caller is being authenticated, and
// those that are idle. Any client that reaches the port can open them, so their number
// and size are bounded: beyond that the oldest one of the host with the most is
// closed. That of a caller that gets on with it is among the youngest.
type pendingConns struct {
	maxConns, maxBytes int

	mu    sync.Mutex
	hosts map[string]*pendingHost
	conns int
	bytes int

	ctx context.Context // for the log
	log *quietLog
}

// pendingHost is where connections come from.
type pendingHost struct {
	conns list.List // of *pendingConn, the oldest first
	bytes int
}

func newPendingConns(ctx context.Context) *pendingConns {
	return &pendingConns{maxConns: maxPendingConns, maxBytes: maxPendingBytes, hosts: map[string]*pendingHost{}, log: newQuietLog(), ctx: ctx}
}

// accept takes a connection as pending.
func (p *pendingConns) accept(conn net.Conn) net.Conn {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		host = conn.RemoteAddr().String()
	}
	c := &pendingConn{Conn: conn, all: p, host: host}
	c.wait()
	return c
}

// change runs f, and then closes connections until the rest is within the limits.
func (p *pendingConns) change(f func()) {
	p.mu.Lock()
	f()
	var closing []*pendingConn
	for p.conns > p.maxConns || p.bytes > p.maxBytes {
		c := p.oldestOfGreediest()
		c.remove()
		closing = append(closing, c)
	}
	p.mu.Unlock()
	for _, c := range closing {
		p.log.warn(p.ctx, "Closed a connection that no request was let in on, since too many wait", log.Fields{"remote": c.host})
		_ = c.Conn.Close()
	}
}

func (p *pendingConns) oldestOfGreediest() *pendingConn {
	var greediest *pendingHost
	for _, host := range p.hosts {
		if greediest == nil || host.bytes > greediest.bytes {
			greediest = host
		}
	}
	return greediest.conns.Front().Value.(*pendingConn)
}

// state is an http.Server's ConnState.
func (p *pendingConns) state(conn net.Conn, state http.ConnState) {
	if c := pendingBelow(conn); c != nil {
		switch state {
		case http.StateActive, http.StateIdle:
			c.wait()
		case http.StateHijacked:
			c.admit()
		}
	}
}

// context is an http.Server's ConnContext, for admit to find the connection.
func (p *pendingConns) context(ctx context.Context, conn net.Conn) context.Context {
	if c := pendingBelow(conn); c != nil {
		return context.WithValue(ctx, pendingKey{}, c)
	}
	return ctx
}

type pendingKey struct{}

// admit says that a request was let in: its connection does not count as pending
// until the answer is complete.
func admit(ctx context.Context) {
	if c, ok := ctx.Value(pendingKey{}).(*pendingConn); ok {
		c.admit()
	}
}

// stayPending returns a context by which admit does nothing: the request is answered
// without its sender being known.
func stayPending(ctx context.Context) context.Context {
	return context.WithValue(ctx, pendingKey{}, nil)
}

// pendingBelow returns the connection below TLS.
func pendingBelow(conn net.Conn) *pendingConn {
	for conn != nil {
		if c, ok := conn.(*pendingConn); ok {
			return c
		}
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = over.NetConn()
	}
	return nil
}

// pendingConn is a connection that may be pending.
type pendingConn struct {
	net.Conn
	all  *pendingConns
	host string

	// By the lock of all.
	place  *list.Element // nil if it is not pending
	bytes  int           // what it counts for
	closed bool
}

// NetConn is for callers that need the socket.
func (c *pendingConn) NetConn() net.Conn { return c.Conn }

func (c *pendingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.all.change(func() { c.grow(n) })
	}
	return n, err
}

func (c *pendingConn) Close() error {
	c.all.change(func() {
		c.remove()
		c.closed = true
	})
	return c.Conn.Close()
}

func (c *pendingConn) wait()  { c.all.change(c.add) }
func (c *pendingConn) admit() { c.all.change(c.remove) }

// add, remove and grow are called with the lock.
func (c *pendingConn) add() {
	if c.place != nil || c.closed {
		return
	}
	host := c.all.hosts[c.host]
	if host == nil {
		host = &pendingHost{}
		c.all.hosts[c.host] = host
	}
	c.place = host.conns.PushBack(c)
	c.bytes = minPendingBytes
	host.bytes += c.bytes
	c.all.bytes += c.bytes
	c.all.conns++
}

func (c *pendingConn) remove() {
	if c.place == nil {
		return
	}
	host := c.all.hosts[c.host]
	host.conns.Remove(c.place)
	host.bytes -= c.bytes
	if host.conns.Len() == 0 {
		delete(c.all.hosts, c.host)
	}
	c.all.bytes -= c.bytes
	c.all.conns--
	c.place, c.bytes = nil, 0
}

func (c *pendingConn) grow(n int) {
	if c.place == nil {
		return
	}
	c.bytes += n
	c.all.hosts[c.host].bytes += n
	c.all.bytes += n
}
