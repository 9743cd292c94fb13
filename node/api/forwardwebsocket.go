package api

import (
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// maxForwardPorts is how many pairs of channels a WebSocket can number.
const maxForwardPorts = 127

// parsePorts reads the ports of the older WebSocket protocols.
func parsePorts(r *http.Request) ([]int32, error) {
	query, err := parseQuery(r)
	if err != nil {
		return nil, err
	}
	values := query[portforward.PortHeader]
	if len(values) == 0 {
		return nil, errdefs.InvalidInputf("query parameter %q is required", portforward.PortHeader)
	}
	var ports []int32
	for text := range strings.SplitSeq(strings.Join(values, ","), ",") {
		port, err := parsePort(text)
		if err != nil {
			return nil, err
		}
		if ports = append(ports, port); len(ports) > maxForwardPorts {
			return nil, errdefs.InvalidInputf("more than %d ports at once", maxForwardPorts)
		}
	}
	return ports, nil
}

func parsePort(text string) (int32, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, errdefs.InvalidInputf("%q is no port", shortText(text))
	}
	return int32(port), nil
}

// serveWebSocket serves one connection for each port, over two channels of a
// WebSocket: one for data, one for errors. Each begins with the port.
func (f *forwarder) serveWebSocket(w *streamConn, ports []int32) {
	channels := make([]wsstream.ChannelType, 0, 2*len(ports))
	for range ports {
		channels = append(channels, wsstream.ReadWriteChannel, wsstream.WriteChannel)
	}
	binary := wsstream.ChannelProtocolConfig{Binary: true, Channels: channels}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"":                binary,
		webSocketV4:       binary,
		webSocketV4Base64: {Channels: channels},
	})
	_, streams, err := openChannels(conn, w, f.request)
	if err != nil {
		log.G(f.request.Context()).WithError(err).Debug("no WebSocket for port-forward")
		return
	}
	defer func() {
		w.gone() // from here on, nothing takes longer than lingerTime
		_ = conn.Close()
	}()
	var forwards sync.WaitGroup
	for i, port := range ports {
		data, errs := streams[2*i], streams[2*i+1]
		writePort(port, data, errs)
		forwards.Go(func() {
			_ = f.run(port, data, errs)
			_ = data.Close()
		})
	}
	forwards.Wait()
}

func writePort(port int32, channels ...io.Writer) {
	number := binary.LittleEndian.AppendUint16(nil, uint16(port))
	for _, channel := range channels {
		_, _ = channel.Write(number)
	}
}
