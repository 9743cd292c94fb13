package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// PortForwardHandlerFunc copies data between stream and a port of a pod until
// either has ended. It is called once for each connection that the client
// makes, concurrently. The context ends, and stream with it, when the client
// has gone or breaks this connection off: Read then fails with the context's
// error. io.EOF is the end of what the client wanted to send. An error is sent
// to the client.
type PortForwardHandlerFunc func(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error

// PortForwardHandlerConfig is what the options of HandlePortForward set.
type PortForwardHandlerConfig struct {
	// StreamIdleTimeout ends a session over which nothing was sent for so long,
	// in neither direction. (kubectl sends something every few seconds as long
	// as it runs.) Zero (or less) means four hours.
	StreamIdleTimeout time.Duration
	// StreamCreationTimeout is how long a client may take to open both streams
	// of a connection. Zero (or less) means 30 seconds.
	StreamCreationTimeout time.Duration
	// Limiter limits how many sessions and connections there are at once. Nil means
	// one of the handler's own, with the default limits.
	Limiter *StreamLimiter
}

// PortForwardHandlerOption sets something of a PortForwardHandlerConfig.
type PortForwardHandlerOption func(*PortForwardHandlerConfig)

// WithPortForwardStreamIdleTimeout sets StreamIdleTimeout.
func WithPortForwardStreamIdleTimeout(dur time.Duration) PortForwardHandlerOption {
	return func(cfg *PortForwardHandlerConfig) { cfg.StreamIdleTimeout = dur }
}

// WithPortForwardCreationTimeout sets StreamCreationTimeout.
func WithPortForwardCreationTimeout(dur time.Duration) PortForwardHandlerOption {
	return func(cfg *PortForwardHandlerConfig) { cfg.StreamCreationTimeout = dur }
}

// WithPortForwardLimiter sets Limiter.
func WithPortForwardLimiter(limiter *StreamLimiter) PortForwardHandlerOption {
	return func(cfg *PortForwardHandlerConfig) { cfg.Limiter = limiter }
}

// HandlePortForward forwards connections to ports of a pod. Clients name the
// ports in their streams; those of the older WebSocket protocols in the query's
// port, repeated or with commas.
func HandlePortForward(h PortForwardHandlerFunc, opts ...PortForwardHandlerOption) http.HandlerFunc {
	var cfg PortForwardHandlerConfig
	for _, o := range opts {
		o(&cfg)
	}
	timeouts := newTimeouts(cfg.StreamIdleTimeout, cfg.StreamCreationTimeout)
	limiter := cfg.Limiter.orDefault()
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("PortForward", "PortForwardHandlerFunc")
		}
		namespace, pod, uid, err := podVars(r)
		if err != nil {
			return err
		}
		if err := checkUpgrade(w, r); err != nil {
			return err
		}
		who := limiter.consumer(r, namespace, pod)
		release, err := limiter.session(who)
		if err != nil {
			return err
		}
		defer release()
		f := &forwarder{
			connections: connections{limiter: limiter, consumer: who},
			target:      fmt.Sprintf("pod %s, uid %s", pod, uid),
			forward: func(ctx context.Context, port int32, stream io.ReadWriteCloser) error {
				return h(ctx, namespace, pod, port, stream)
			},
		}
		return f.serve(w, r, timeouts)
	})
}

// forwarder is one port-forward session.
type forwarder struct {
	request *http.Request // its context ends with the session
	target  string
	forward func(context.Context, int32, io.ReadWriteCloser) error
	calls   calls

	connections connections
}

// serve returns when the client has gone and all provider calls have ended.
func (f *forwarder) serve(w http.ResponseWriter, r *http.Request, timeouts timeouts) error {
	serve := func(conn *streamConn) { f.serveSPDY(conn, timeouts.creation) }
	switch {
	case slices.Contains(websocket.Subprotocols(r), portforward.WebsocketsSPDYTunnelingPortForwardV1):
		serve = func(conn *streamConn) { f.serveTunnel(conn, timeouts.creation) }
	case wsstream.IsWebSocketRequest(r):
		ports, err := parsePorts(r)
		if err != nil {
			return err
		}
		for range ports {
			release, err := f.connections.acquire()
			if err != nil {
				return err
			}
			defer release()
		}
		serve = func(conn *streamConn) { f.serveWebSocket(conn, ports) }
	}
	conn, r := watch(w, r, timeouts.idle)
	f.request = r
	defer f.calls.finish()
	defer conn.Close()
	serve(conn)
	return nil
}

// run calls the provider for one connection of the client, and sends it a
// failure. The streams are still to be closed.
func (f *forwarder) run(port int32, data io.ReadWriteCloser, errs io.Writer) error {
	if !f.calls.start() {
		return context.Canceled
	}
	defer f.calls.end()
	ctx, cancel := context.WithCancel(f.request.Context())
	defer cancel()
	stop := context.AfterFunc(ctx, func() { release(data) })
	defer stop()
	stream := &clientStream{ctx: ctx, cancel: cancel, ReadWriteCloser: data}
	err := call(f.request, func() error { return f.forward(ctx, port, stream) })
	if err != nil {
		err = fmt.Errorf("error forwarding port %d to %s: %s", port, f.target, errorText(err))
		log.G(ctx).WithError(err).Debug("port-forward ended with an error")
		// A client that has reset this connection has no use for the message; kubectl
		// would end all other connections because of it.
		if !stream.reset.Load() {
			_, _ = io.WriteString(errs, err.Error())
		}
	}
	return err
}
