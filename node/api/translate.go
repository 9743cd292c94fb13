package api

import (
	"context"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/util/proxy"
)

// translate speaks version 5 of the WebSocket protocol. The library's server
// for it is a translator in front of a SPDY server, as in kube-apiserver and
// the kubelet; here, the SPDY server is at the other end of a pipe.
func (s *session) translate(w http.ResponseWriter, r *http.Request) {
	server := &http.Server{
		Handler: answer(func(w http.ResponseWriter, inner *http.Request) error {
			conn, inner := watch(w, inner, s.timeouts.idle)
			defer conn.Close()
			s.serve(conn, inner)
			return nil
		}),
		BaseContext: func(net.Listener) context.Context { return r.Context() },
		ErrorLog:    stdlog.New(io.Discard, "", 0),
	}
	defer func() { _ = server.Close() }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, conn := net.Pipe()
		listener := &oneConn{conn: conn}
		err := server.Serve(listener) // returns as soon as the connection has its goroutine
		if listener.conn != nil {
			return nil, err
		}
		return client, nil
	}}
	proxy.NewStreamTranslatorHandler(&url.URL{Scheme: "http", Host: "pod"}, transport, 0, proxy.Options{
		Stdin: s.opts.Stdin, Stdout: s.opts.Stdout, Stderr: s.opts.Stderr, Tty: s.opts.TTY,
	}).ServeHTTP(w, r)
}

// oneConn is a listener that accepts one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, io.EOF
	}
	conn := l.conn
	l.conn = nil
	return conn, nil
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pod", Net: "pipe"} }
