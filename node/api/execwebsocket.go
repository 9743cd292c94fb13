package api

import (
	"io"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// The WebSocket protocols, the newest of which can say that stdin has ended.
const (
	webSocketV4       = "v4." + wsstream.ChannelWebSocketProtocol
	webSocketV4Base64 = "v4." + wsstream.Base64ChannelWebSocketProtocol
	webSocketV5       = remotecommand.StreamProtocolV5Name
)

// openWebSocket opens the channels of a WebSocket client. Where it returns nil,
// the client has got the error.
//
// The library's server (of k8s.io/cri-streaming) knows nothing of version 5.
func openWebSocket(w http.ResponseWriter, r *http.Request, want execStreams, failed string) *execClient {
	channels := execChannels(want)
	binary := wsstream.ChannelProtocolConfig{Binary: true, Channels: channels}
	base64 := wsstream.ChannelProtocolConfig{Channels: channels}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"":                                      binary,
		wsstream.ChannelWebSocketProtocol:       binary,
		wsstream.Base64ChannelWebSocketProtocol: base64,
		webSocketV4:                             binary,
		webSocketV4Base64:                       base64,
		webSocketV5:                             binary,
	})
	protocol, streams, err := openChannels(conn, w, r)
	if err != nil {
		log.G(r.Context()).WithError(err).Debug("no WebSocket for exec or attach")
		return nil
	}
	asJSON := protocol == webSocketV4 || protocol == webSocketV4Base64 || protocol == webSocketV5
	status := streams[remotecommand.StreamErr]
	client := &execClient{
		resize: streams[remotecommand.StreamResize],
		finish: func(err error) { writeStatus(status, asJSON, err, failed) },
		close:  func() { _ = conn.Close() },
	}
	first := status
	if want.stderr {
		client.stderr = streams[remotecommand.StreamStdErr]
		first = client.stderr
	}
	if want.stdout {
		client.stdout = streams[remotecommand.StreamStdOut]
		first = client.stdout
	}
	if want.stdin {
		client.stdin = streams[remotecommand.StreamStdIn]
	}
	_, _ = first.Write(nil) // shows the client that the session has begun
	return client
}

// openChannels takes over the connection of a request. The library gets no logger: it would
// log each message that it cannot use as an error, as often as the client likes.
func openChannels(conn *wsstream.Conn, w http.ResponseWriter, r *http.Request) (protocol string, channels []io.ReadWriteCloser, err error) {
	return conn.Open(w, r.WithContext(logr.NewContext(r.Context(), logr.Discard())))
}

// execChannels are the channels of a session, by number.
func execChannels(want execStreams) []wsstream.ChannelType {
	channels := make([]wsstream.ChannelType, 5) // unused unless set below
	if want.stdin {
		channels[remotecommand.StreamStdIn] = wsstream.ReadChannel
	}
	if want.stdout {
		channels[remotecommand.StreamStdOut] = wsstream.WriteChannel
	}
	if want.stderr {
		channels[remotecommand.StreamStdErr] = wsstream.WriteChannel
	}
	channels[remotecommand.StreamErr] = wsstream.WriteChannel
	channels[remotecommand.StreamResize] = wsstream.ReadChannel
	return channels
}
