package api

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// lingerTime is how long a connection may stay when its session has ended, for
// the client to take what it was sent last.
const lingerTime = time.Second

// streamConn is the connection of one exec, attach or port-forward. It is the
// http.ResponseWriter that the streaming libraries take the connection from,
// and so it can do what they do not: end a context when the client has gone,
// and let the client have the last bytes when the session is over.
//
// It deliberately has no Unwrap: the libraries look for the innermost writer.
type streamConn struct {
	http.ResponseWriter
	ctx         context.Context
	gone        context.CancelFunc
	idleTimeout time.Duration
	webSocket   bool
	maxStreams  int // of SPDY: see newFrameConn
	flight      *inFlight
	tunnel      bool // the WebSocket carries SPDY, and no channels

	mu   sync.Mutex
	conn *watchedConn
}

var _ http.Hijacker = (*streamConn)(nil)

// watch returns a writer for the libraries, and r with a context that ends with
// the client's connection. The caller must close the writer in the end.
func watch(w http.ResponseWriter, r *http.Request, idleTimeout time.Duration) (*streamConn, *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	return &streamConn{
		ResponseWriter: w, ctx: ctx, gone: cancel, idleTimeout: idleTimeout, webSocket: wsstream.IsWebSocketRequest(r), flight: newInFlight(),
	}, r.WithContext(ctx)
}

// Hijack implements http.Hijacker.
func (s *streamConn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = raw.SetDeadline(time.Time{}) // a server's timeouts do not count any more
	watched := newWatchedConn(raw, rw.Reader, s.idleTimeout, s.gone)
	// However the context ended, also by the server's shutdown, nothing hangs on.
	context.AfterFunc(s.ctx, watched.expire)
	s.mu.Lock()
	s.conn = watched
	s.mu.Unlock()
	var conn net.Conn = watched
	switch {
	case !s.webSocket:
		conn = newFrameConn(conn, s.maxStreams, s.flight, s.gone)
	case !s.tunnel:
		conn = newMessageConn(conn, s.gone)
	}
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// Close ends the context and the connection. It waits, a little, until the
// client has closed its side: a connection that is closed with unread input is
// reset, and what the client has not yet received would be lost, the exit code
// for one.
func (s *streamConn) Close() {
	s.gone()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
		conn.drain()
		conn.abort()
	}
}
