package api

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// PortForwardHandlerFunc copies data between stream and a port of a pod until
// either has ended. It is called once for each connection that the client
// makes, concurrently. The context ends, and stream with it, when the client
// has gone. An error is told to the client.
type PortForwardHandlerFunc func(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error

// PortForwardHandlerConfig is what the options of HandlePortForward set.
type PortForwardHandlerConfig struct {
	// StreamIdleTimeout ends a session over which nothing was sent for so long.
	// Zero (or less) means four hours.
	StreamIdleTimeout time.Duration
	// StreamCreationTimeout is how long a client may take to open both streams
	// of a connection. Zero (or less) means 30 seconds.
	StreamCreationTimeout time.Duration
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

// maxForwardPorts is how many pairs of channels a WebSocket can number.
const maxForwardPorts = 127

// HandlePortForward forwards connections to ports of a pod. Clients name the
// ports in their streams; those of the older WebSocket protocols in the query's
// port, repeated or with commas.
func HandlePortForward(h PortForwardHandlerFunc, opts ...PortForwardHandlerOption) http.HandlerFunc {
	var cfg PortForwardHandlerConfig
	for _, o := range opts {
		o(&cfg)
	}
	timeouts := newTimeouts(cfg.StreamIdleTimeout, cfg.StreamCreationTimeout)
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("PortForward", "PortForwardHandlerFunc")
		}
		namespace, pod, uid, err := podVars(r)
		if err != nil {
			return err
		}
		if !httpstream.IsUpgradeRequest(r) {
			return errUpgradeRequired
		}
		serve, options := portforward.ServePortForward, &portforward.V4Options{}
		if slices.Contains(websocket.Subprotocols(r), portforward.WebsocketsSPDYTunnelingPortForwardV1) {
			serve = serveTunnel
		} else if options, err = portforward.NewV4Options(r); err != nil {
			return errdefs.AsInvalidInput(err)
		} else if len(options.Ports) > maxForwardPorts {
			return errdefs.InvalidInputf("%d ports at once, at most %d are possible", len(options.Ports), maxForwardPorts)
		}

		conn, r := watch(w, r, timeouts.idle)
		f := &forwarder{request: r, forward: func(ctx context.Context, port int32, stream io.ReadWriteCloser) error {
			return h(ctx, namespace, pod, port, stream)
		}}
		defer f.calls.finish()
		defer conn.Close()
		serve(conn, r, f, pod, uid, options, timeouts.idle, timeouts.creation, portforward.SupportedProtocols)
		return nil
	})
}

// forwarder is one port-forward session.
type forwarder struct {
	request *http.Request
	forward func(context.Context, int32, io.ReadWriteCloser) error
	calls   calls
}

var _ portforward.PortForwarder = (*forwarder)(nil)

// PortForward implements portforward.PortForwarder. The library's context never
// ends; that of the request ends with the connection.
func (f *forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if !f.calls.start() {
		return context.Canceled
	}
	defer f.calls.end()
	ctx, cancel := context.WithCancel(f.request.Context())
	defer cancel()
	stop := context.AfterFunc(ctx, func() { release(stream) })
	defer stop()

	err := call(f.request, func() error { return f.forward(ctx, port, stream) })
	if err == nil {
		_ = stream.Close() // what was written still arrives
		release(stream)
	} else {
		awaitReply(ctx, stream)
	}
	return err
}

// awaitReply waits until the client has been told that its stream is open. The
// library resets the stream of a failed forward; before the reply, that would
// be all that the client learns.
func awaitReply(ctx context.Context, stream io.ReadWriteCloser) {
	if _, ok := stream.(httpstream.Stream); !ok {
		return
	}
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		_, _ = stream.Write(nil) // waits for the reply
	}()
	select {
	case <-replied:
	case <-ctx.Done():
	}
}
