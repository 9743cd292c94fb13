package grouptest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Dialer connects clients with servers of one process, without sockets: the fake of a
// service for a Suite, whose virtual time stands still while a socket is read.
type Dialer struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
	count []*World
}

// Serve serves handler until the test ends, and returns a Dialer that connects to it
// for any address. What it transfers counts in the Worlds: see World.Traffic.
func Serve(t *testing.T, handler http.Handler, count ...*World) *Dialer {
	t.Helper()
	d := &Dialer{conns: make(chan net.Conn), done: make(chan struct{}), count: count}
	d.close = sync.OnceFunc(func() { close(d.done) })
	server := &http.Server{Handler: handler} // #nosec G112 -- its only client is the test
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(d) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return d
}

// DialContext connects to the server, like net.Dialer.DialContext.
func (d *Dialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case d.conns <- server:
		for _, w := range d.count {
			client = counted{client, w}
		}
		return client, nil
	case <-d.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// counted is a client's connection whose bytes count in a World.
type counted struct {
	net.Conn
	world *World
}

// Read implements net.Conn.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.world.received.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.world.sent.Add(int64(n))
	return n, err
}

// Transport returns a transport of HTTP clients to the server. Its connections are closed
// when the test ends.
func (d *Dialer) Transport(t *testing.T) *http.Transport {
	t.Helper()
	transport := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// Accept implements net.Listener.
func (d *Dialer) Accept() (net.Conn, error) {
	select {
	case conn := <-d.conns:
		return conn, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *Dialer) Close() error {
	d.close()
	return nil
}

// Addr implements net.Listener.
func (*Dialer) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
