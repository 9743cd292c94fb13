package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming"
)

// streamServer serves the URLs that Exec, Attach and PortForward return.
type streamServer struct {
	streaming.Server
	http *http.Server

	mu     sync.Mutex
	closed bool
	conns  map[*kept]bool
}

// streamCreationTimeout is how long a client may take to open its streams. The library
// waits as long for one that has gone, with a few goroutines; by default 30 s.
const streamCreationTimeout = 10 * time.Second

// streamServer returns the server of streams, which serves from the first time on that
// somebody asks for a URL, or from the start if it has an address of its own: users in
// this process need none (see Streams).
func (r *Runtime) streamServer() (server *streamServer, err error) {
	r.serving.Lock()
	defer r.serving.Unlock()
	switch {
	case r.ctx.Err() != nil:
		return nil, errors.New("the runtime is closed")
	case r.streams == nil:
		r.streams, err = r.serveStreams(cmp.Or(r.cfg.StreamAddress, "127.0.0.1:0"))
	}
	return r.streams, err
}

func (r *Runtime) closeStreams() {
	r.serving.Lock()
	defer r.serving.Unlock()
	if r.streams != nil {
		r.streams.close()
	}
}

func (r *Runtime) serveStreams(address string) (*streamServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("streams (streamAddress): %w", err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}
	config.StreamCreationTimeout = streamCreationTimeout
	server, err := streaming.NewServer(config, streams{r})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	s := &streamServer{Server: server, conns: map[*kept]bool{}}
	s.http = &http.Server{Handler: server, ReadHeaderTimeout: 30 * time.Second,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, keptKey{}, conn)
		}}
	r.spawn(func() { _ = s.http.Serve(listener{l, s}) })
	return s, nil
}

// listener keeps the connections: the HTTP server forgets those that are taken
// over from it.
type listener struct {
	net.Listener
	server *streamServer
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.server.track(conn), nil
}

// kept is a connection that is kept until it is closed.
type kept struct {
	net.Conn
	server *streamServer
	// ctx ends when the other side has gone. The one of the HTTP request does
	// not, once the connection was taken over.
	ctx    context.Context
	cancel context.CancelFunc
}

type keptKey struct{}

// Read notices that the other side has gone: streams are always read from.
func (k *kept) Read(data []byte) (int, error) {
	n, err := k.Conn.Read(data)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		k.cancel()
	}
	return n, err
}

func (s *streamServer) track(conn net.Conn) net.Conn {
	k := &kept{Conn: conn, server: s}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[k] = true
	if s.closed {
		_ = conn.Close()
	}
	return k
}

// Close closes the connection.
func (k *kept) Close() error {
	k.cancel()
	k.server.mu.Lock()
	delete(k.server.conns, k)
	k.server.mu.Unlock()
	return k.Conn.Close()
}

func (s *streamServer) close() {
	_ = s.http.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for k := range s.conns {
		_ = k.Conn.Close()
	}
}
