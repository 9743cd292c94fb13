package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// streamConn is the connection of one exec, attach or port-forward. It is the
// http.ResponseWriter that the streaming libraries take the connection from,
// and so it can do what they do not: end a context when the client has gone.
//
// It deliberately has no Unwrap: the libraries look for the innermost writer.
type streamConn struct {
	http.ResponseWriter
	idleTimeout time.Duration
	gone        context.CancelFunc

	mu   sync.Mutex
	conn *watchedConn
}

var _ http.Hijacker = (*streamConn)(nil)

// watch returns a writer for the libraries, and r with a context that ends with
// the client's connection. The caller must close the writer in the end.
func watch(w http.ResponseWriter, r *http.Request, idleTimeout time.Duration) (*streamConn, *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	return &streamConn{ResponseWriter: w, idleTimeout: idleTimeout, gone: cancel}, r.WithContext(ctx)
}

// Hijack implements http.Hijacker.
func (s *streamConn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = raw.SetDeadline(time.Time{}) // a server's timeouts do not count any more
	conn := newWatchedConn(raw, rw.Reader, s.idleTimeout, s.gone)
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// Close ends the context and the connection, which the libraries leave open in
// some cases (a client that does not open the streams that it announced).
func (s *streamConn) Close() {
	s.gone()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// How long nobody may read before the connection itself does, and how much.
const (
	readAheadDelay = 100 * time.Millisecond
	readAheadLimit = 256 << 10
)

// watchedConn is a connection that calls gone when the other end has closed it,
// also while nobody reads from it: the libraries stop reading when a provider
// does not take its input, or after a SPDY "go away".
type watchedConn struct {
	net.Conn
	src         *bufio.Reader // reads from Conn
	idleTimeout time.Duration
	gone        context.CancelFunc
	closeOnce   sync.Once
	idle        *time.Timer // starts readAhead

	mu      sync.Mutex
	changed sync.Cond
	reading bool // somebody is in src.Read
	waiting int  // calls of Read that wait for readAhead
	ahead   []byte
	err     error
}

func newWatchedConn(raw net.Conn, src *bufio.Reader, idleTimeout time.Duration, gone context.CancelFunc) *watchedConn {
	c := &watchedConn{Conn: raw, src: src, idleTimeout: idleTimeout, gone: gone}
	c.changed.L = &c.mu
	c.idle = time.AfterFunc(readAheadDelay, c.readAhead)
	return c
}

func (c *watchedConn) Read(p []byte) (int, error) {
	c.idle.Stop()
	defer c.idle.Reset(readAheadDelay)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	for c.reading && len(c.ahead) == 0 && c.err == nil {
		c.changed.Wait()
	}
	c.waiting--
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.read(p)
}

// read reads from the connection. mu is held before and after.
func (c *watchedConn) read(p []byte) (int, error) {
	c.reading = true
	c.mu.Unlock()
	n, err := c.src.Read(p)
	c.mu.Lock()
	c.reading = false
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF // our own Close is no failure: one library would log it as such
	}
	if err != nil {
		c.err = err
		_ = c.Close()
	}
	c.changed.Broadcast()
	return n, err
}

// readAhead reads while nobody else does, up to a limit.
func (c *watchedConn) readAhead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	buf := make([]byte, 4<<10)
	for !c.reading && c.waiting == 0 && c.err == nil && len(c.ahead) < readAheadLimit {
		n, _ := c.read(buf)
		c.ahead = append(c.ahead, buf[:n]...)
	}
}

// Close tells that the connection has gone, and closes it once. It never fails:
// the SPDY library would wait for somebody to take the error.
func (c *watchedConn) Close() error {
	c.closeOnce.Do(func() {
		c.gone()
		c.idle.Stop()
		_ = c.Conn.Close()
	})
	return nil
}

// SetDeadline caps deadlines at the idle timeout: one library has its own.
func (c *watchedConn) SetDeadline(t time.Time) error {
	if limit := time.Now().Add(c.idleTimeout); t.After(limit) {
		t = limit
	}
	return c.Conn.SetDeadline(t)
}
