package api

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	clientportforward "k8s.io/client-go/tools/portforward"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// serveTunnel is portforward.ServePortForward for SPDY inside a WebSocket.
func serveTunnel(w http.ResponseWriter, r *http.Request, f portforward.PortForwarder, pod, uid string, options *portforward.V4Options, idleTimeout, creationTimeout time.Duration, protocols []string) {
	upgrader := websocket.Upgrader{
		CheckOrigin:  func(*http.Request) bool { return true }, // clients identify themselves otherwise
		Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1},
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	conn := clientportforward.NewTunnelingConnection("server", ws)
	defer func() { _ = conn.Close() }()

	inner := r.Clone(r.Context())
	inner.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	inner.Header.Set(httpstream.HeaderProtocolVersion, portforward.PortForwardV1Name)
	portforward.ServePortForward(tunnelWriter{conn, http.Header{}}, inner, f, pod, uid, options, idleTimeout, creationTimeout, protocols)
}

// tunnelWriter hands out the tunnel as the connection of a request; the answer
// to that request has been given by the WebSocket's.
type tunnelWriter struct {
	conn   net.Conn
	header http.Header
}

var _ http.Hijacker = tunnelWriter{}

func (w tunnelWriter) Header() http.Header { return w.header }
func (w tunnelWriter) WriteHeader(int)     {}
func (w tunnelWriter) Write([]byte) (int, error) {
	return 0, errors.New("the tunnel is no HTTP response")
}

func (w tunnelWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}
