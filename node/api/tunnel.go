package api

import (
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	clientportforward "k8s.io/client-go/tools/portforward"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// serveTunnel is serveSPDY inside a WebSocket.
func (f *forwarder) serveTunnel(w *streamConn, creation time.Duration) {
	upgrader := websocket.Upgrader{
		CheckOrigin:  func(*http.Request) bool { return true }, // clients identify themselves otherwise
		Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1},
	}
	w.tunnel = true
	ws, err := upgrader.Upgrade(w, f.request, nil)
	if err != nil {
		return // Upgrade has answered
	}
	pairs := newStreamPairs(f, creation, w.flight)
	tunnel := newFrameConn(clientportforward.NewTunnelingConnection("server", ws), 0, w.flight, w.gone)
	conn, err := newSPDYConn(f.request.Context(), tunnel, w.gone, pairs.accept)
	if err != nil {
		return // and the tunnel has been closed
	}
	pairs.serve(w, conn)
	_ = tunnel.Close()
}
