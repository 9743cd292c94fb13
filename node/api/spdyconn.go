package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/moby/spdystream"
	spdyframes "github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// maxHeaderField is how long the name and the value of a stream's header may be:
	// compressed, a field of 1 MiB, which the library would take, has 1 KiB.
	maxHeaderField = 256
	// maxHeaderFields is how many headers a stream may have. Clients send up to three.
	maxHeaderFields = 16
)

// streamHandler accepts a stream that a client has opened, and owns it then. A stream for
// which it returns an error is reset. It must not wait for anything: the library's workers
// call it, and end only when it does.
type streamHandler func(*spdystream.Stream) error

// newSPDYConn serves SPDY over conn, and calls gone when the library has stopped to read
// from it, since it does not close it. A client that sends larger headers than the limits
// above allow, or such that cannot be read, is one reason for that.
//
// Kubernetes' own server (k8s.io/streaming/pkg/httpstream/spdy) has no such limits, and
// logs each stream that is refused, as often as the client likes.
func newSPDYConn(ctx context.Context, conn net.Conn, gone func(), accept streamHandler) (*spdystream.Connection, error) {
	server, err := spdystream.NewConnectionWithOptions(conn, true,
		spdyframes.WithMaxHeaderFieldSize(maxHeaderField), spdyframes.WithMaxHeaderCount(maxHeaderFields))
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	go server.Serve(func(stream *spdystream.Stream) { // ends with the connection
		err := accept(stream)
		clear(stream.Headers()) // or they would stay as long as the stream
		if err != nil {
			log.G(ctx).WithError(err).Debug("refused a SPDY stream")
			_ = stream.Reset()
		}
	})
	go func() { // ends with the connection; Serve returns later, once all input before it was read
		<-server.CloseChan()
		gone()
	}()
	return server, nil
}

// upgradeSPDY takes over the connection of a request that checkUpgrade has let through.
func upgradeSPDY(ctx context.Context, w *streamConn, accept streamHandler) (*spdystream.Connection, error) {
	w.Header().Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	w.Header().Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffers, err := w.Hijack()
	if err != nil {
		return nil, err
	}
	return newSPDYConn(ctx, &bufferedConn{Conn: conn, from: buffers.Reader}, w.gone, accept)
}

// bufferedConn is a connection that is read by way of a buffer until it is closed.
type bufferedConn struct {
	net.Conn
	from   *bufio.Reader
	closed atomic.Bool
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, io.EOF
	}
	return c.from.Read(p)
}

func (c *bufferedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
