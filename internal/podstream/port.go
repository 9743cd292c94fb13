// Package podstream opens streams to pods, as a client of a kubelet or an API server.
package podstream

import (
	"errors"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// OpenPort makes the two streams of a connection to a port of a pod: data goes both ways,
// and what comes on failure is why there is none. The connection is for one port.
func OpenPort(conn httpstream.Connection, port int) (data, failure httpstream.Stream, err error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, failed := conn.CreateStream(headers)
	if failed == nil {
		failed = failure.Close() // for writing: only the other side has something to say
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err = conn.CreateStream(headers)
	if err := errors.Join(failed, err); err != nil {
		return nil, nil, err
	}
	return data, failure, nil
}
