package nodeutil

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

const (
	// readHeaderTimeout keeps clients that send nothing from staying.
	readHeaderTimeout = 30 * time.Second
	// drainTimeout is what requests are given to end at shutdown.
	drainTimeout = 2 * time.Second
)

var everything = labels.Everything()

// listen opens the port of the kubelet API, with TLS.
func (n *Node) listen(ctx context.Context) (net.Listener, error) {
	config := n.cfg.TLSConfig
	if config == nil {
		config = defaultTLSConfig()
		if err := WithSelfSignedCertificate(n.cfg.NodeSpec.Name, n.cfg.NodeSpec.Status.Addresses)(config); err != nil {
			return nil, err
		}
	}
	config = config.Clone()
	// Streams are upgraded from HTTP/1.1; nothing here gains from HTTP/2.
	config.NextProtos = []string{"http/1.1"}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", n.cfg.HTTPListenAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the kubelet API (another port, or port 0 for any free one, may help): %w", err)
	}
	return &tlsListener{Listener: tls.NewListener(listener, config), plain: listener}, nil
}

// tlsListener shows the address of the listener below.
type tlsListener struct {
	net.Listener
	plain net.Listener
}

func (l *tlsListener) Addr() net.Addr { return l.plain.Addr() }

// serve serves the kubelet API until ctx ends.
func (n *Node) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           n.cfg.Handler,
		ReadHeaderTimeout: readHeaderTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(drain) != nil {
			_ = server.Close()
		}
	})
	log.G(ctx).WithField("address", listener.Addr().String()).Info("Serving the kubelet API")
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("cannot go on serving the kubelet API: %w", err)
}

// endpointTeller adds to what a provider says of its node the port on which it
// can be reached, where the provider does not say.
type endpointTeller struct {
	node.NodeProvider
	port int32 // set before the node controller runs; 0 if nothing is served
}

func (e *endpointTeller) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	if e.port != 0 {
		notify(&corev1.Node{Status: corev1.NodeStatus{DaemonEndpoints: corev1.NodeDaemonEndpoints{
			KubeletEndpoint: corev1.DaemonEndpoint{Port: e.port},
		}}})
	}
	e.NodeProvider.NotifyNodeStatus(ctx, notify)
}
