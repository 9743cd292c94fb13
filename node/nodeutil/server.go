package nodeutil

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// readHeaderTimeout keeps clients that send nothing from staying.
	readHeaderTimeout = 30 * time.Second
	// bodyTimeout is what a request's body may take. None of the kubelet API needs one.
	bodyTimeout = 30 * time.Second
	// idleTimeout is the kubelet's for connections without a request.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes has room for the longest command line: the command of an
	// exec is part of the URL. kube-apiserver has the same limit.
	maxHeaderBytes = 1 << 20
	// drainTimeout is what requests are given to end at shutdown.
	drainTimeout = 2 * time.Second
)

var everything = labels.Everything()

// checkListenAddr returns early what net.Listen would return late.
func checkListenAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return errdefs.AsInvalidInput(fmt.Errorf("cannot listen on %q, which should look like :10250 or 10.0.0.1:10250: %w", addr, err))
	}
	return nil
}

// listen opens the port of the kubelet API, with TLS.
func (n *Node) listen(ctx context.Context) (net.Listener, error) {
	config := n.cfg.TLSConfig.Clone()
	if config == nil {
		config = defaultTLSConfig()
	}
	n.acceptTokens(config)
	if n.cfg.ServingCertDir != "" {
		if err := n.useServingCert(ctx, config); err != nil {
			return nil, err
		}
	}
	config, err := completeTLS(config, n.cfg.NodeSpec.Name, n.cfg.NodeSpec.Status.Addresses)
	if err != nil {
		return nil, err
	}
	n.servingLife.of(config)
	return listenTLS(ctx, n.cfg.HTTPListenAddr, config)
}

// completeTLS returns config, or the default one, with a self-signed certificate
// if it has none.
func completeTLS(config *tls.Config, host string, addresses []corev1.NodeAddress) (*tls.Config, error) {
	config = config.Clone()
	if config == nil {
		config = defaultTLSConfig()
	}
	if len(config.Certificates) > 0 || config.GetCertificate != nil || config.GetConfigForClient != nil {
		return config, nil
	}
	return config, WithSelfSignedCertificate(host, addresses)(config)
}

// listenTLS opens a port. It changes config.
func listenTLS(ctx context.Context, address string, config *tls.Config) (net.Listener, error) {
	// Streams are upgraded from HTTP/1.1; nothing here gains from HTTP/2.
	config.NextProtos = []string{"http/1.1"}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the kubelet API (another port, or port 0 for any free one, may help): %w", err)
	}
	quiet := newQuietLog()
	pending := pendingconns.New(func(remote string) {
		quiet.warn(ctx, "Closed a connection that no request was let in on, since too many wait", log.Fields{"remote": remote})
	})
	return &tlsListener{Listener: tls.NewListener(pending.Listener(listener), config), plain: listener, pending: pending}, nil
}

// tlsListener shows the address of the listener below.
type tlsListener struct {
	net.Listener
	plain   net.Listener
	pending *pendingconns.Conns
}

func (l *tlsListener) Addr() net.Addr { return l.plain.Addr() }

// startServing serves the node's kubelet API in group, and has the node report the
// port.
func (n *Node) startServing(ctx context.Context, group *errgroup.Group, listener net.Listener) {
	n.setPort(listener)
	group.Go(func() error { return serve(ctx, listener, n.cfg.Handler) })
	if n.serving != nil {
		group.Go(func() error { return n.rotateServingCert(ctx) })
	}
}

// setPort has the node report the listener's port, unless it reports another. It is
// called before the node runs.
func (n *Node) setPort(listener net.Listener) {
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && n.cfg.NodeSpec.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		n.endpoint.port = int32(tcp.Port)
	}
}

// serve serves a kubelet API until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	var running inFlight
	server := &http.Server{
		Handler:           running.counting(bodyInTime(handler)),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          serverLog(ctx),
	}
	if l, ok := listener.(*tlsListener); ok {
		server.ConnState, server.ConnContext = l.pending.State, l.pending.Context
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(drain) != nil {
			_ = server.Close()
		}
		running.wait(drain) // also for streams, which the server no longer knows
	})
	log.G(ctx).WithField("address", listener.Addr().String()).Info("Serving the kubelet API")
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	_ = server.Close()
	return fmt.Errorf("cannot go on serving the kubelet API: %w", err)
}

// bodyInTime ends a connection on which the body of a request does not come. The server
// waits for it even where the handler does not read it.
func bodyInTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		h.ServeHTTP(w, r)
	})
}
