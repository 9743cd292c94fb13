package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readAheadDelay is how long nobody may read before the connection does.
	readAheadDelay = 100 * time.Millisecond
	// readAheadLimit is how much it reads then.
	readAheadLimit = 16 << 10
	// hangUpDelay is how often the operating system is asked after that.
	hangUpDelay = time.Second
)

// watchedConn is a connection that calls gone when the other end has closed it,
// also while nobody reads from it: the libraries stop reading when a provider
// does not take its input, or after a SPDY "go away".
type watchedConn struct {
	net.Conn
	src       *bufio.Reader // reads from Conn
	gone      context.CancelFunc
	closeOnce sync.Once
	abortOnce sync.Once
	unread    *time.Timer // starts readAhead

	start       time.Time
	idleTimeout time.Duration
	idle        *time.Timer  // starts checkIdle
	lastUse     atomic.Int64 // since start

	mu      sync.Mutex
	changed sync.Cond
	closing bool
	reading bool // somebody is in src.Read
	waiting int  // calls of Read that wait for readAhead
	ahead   []byte
	err     error
}

func newWatchedConn(raw net.Conn, src *bufio.Reader, idleTimeout time.Duration, gone context.CancelFunc) *watchedConn {
	c := &watchedConn{Conn: raw, src: src, gone: gone, start: time.Now(), idleTimeout: idleTimeout}
	c.changed.L = &c.mu
	// Both are set before either can fire.
	c.unread = time.AfterFunc(math.MaxInt64, c.readAhead)
	c.idle = time.AfterFunc(math.MaxInt64, c.checkIdle)
	c.unread.Reset(readAheadDelay)
	c.idle.Reset(idleTimeout)
	return c
}

func (c *watchedConn) Read(p []byte) (int, error) {
	c.unread.Stop()
	defer c.unread.Reset(readAheadDelay)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	for c.reading && len(c.ahead) == 0 && c.err == nil && !c.closing {
		c.changed.Wait()
	}
	c.waiting--
	if c.closing {
		return 0, io.EOF // what still comes is drain's
	}
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
	if n > 0 {
		c.used()
	}
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF // our own Close is no failure: one library would log it as such
	}
	if err != nil {
		c.err = err
		c.abort()
	}
	c.changed.Broadcast()
	return n, err
}

// readAhead reads while nobody else does, up to a limit. Beyond that only the
// operating system can report, where it does, that the client has gone.
func (c *watchedConn) readAhead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	unused := func() bool { return !c.reading && c.waiting == 0 && c.err == nil && !c.closing }
	buf := make([]byte, 4<<10)
	for unused() && len(c.ahead) < readAheadLimit {
		n, _ := c.read(buf)
		c.ahead = append(c.ahead, buf[:n]...)
	}
	if !unused() {
		return
	}
	if hungUp(c.Conn) {
		c.abort()
		return
	}
	c.unread.Reset(hangUpDelay)
}

func (c *watchedConn) Write(p []byte) (int, error) {
	if c.isClosing() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.used()
	}
	if err != nil && !c.isClosing() {
		c.abort()
	}
	return n, err
}

func (c *watchedConn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// used records that something was sent or received.
func (c *watchedConn) used() { c.lastUse.Store(int64(time.Since(c.start))) }

// checkIdle ends the connection if it was not used for too long.
func (c *watchedConn) checkIdle() {
	left := c.idleTimeout - (time.Since(c.start) - time.Duration(c.lastUse.Load()))
	if left <= 0 {
		c.abort()
		return
	}
	c.idle.Reset(left)
}

// Close marks the connection as gone, and ends what is sent on it. It
// never fails: the SPDY library would wait for somebody to take the error.
func (c *watchedConn) Close() error {
	c.closeOnce.Do(func() {
		c.gone()
		c.mu.Lock()
		c.closing = true
		failed := c.err != nil
		c.changed.Broadcast()
		c.mu.Unlock()
		if w, ok := c.Conn.(interface{ CloseWrite() error }); ok && !failed {
			_ = w.CloseWrite()
		} else {
			c.abort()
		}
	})
	return nil
}

// drain reads until the client has closed its side, or the connection expires.
func (c *watchedConn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	buf := make([]byte, 4<<10)
	for c.err == nil {
		if c.reading {
			c.changed.Wait()
		} else {
			_, _ = c.read(buf)
		}
	}
}

// abort closes the connection at once.
func (c *watchedConn) abort() {
	c.abortOnce.Do(func() {
		c.gone()
		c.unread.Stop()
		c.idle.Stop()
		_ = c.Conn.Close()
	})
}

// expire gives the connection lingerTime to end.
func (c *watchedConn) expire() { _ = c.Conn.SetDeadline(time.Now().Add(lingerTime)) }

// The libraries' deadlines are for being idle, which is checkIdle's to notice.

func (c *watchedConn) SetDeadline(time.Time) error      { return nil }
func (c *watchedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *watchedConn) SetWriteDeadline(time.Time) error { return nil }
