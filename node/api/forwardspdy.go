package api

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/moby/spdystream"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// serveSPDY serves connections that come as pairs of SPDY streams.
//
// The library's own server (portforward.ServePortForward) leaves goroutines
// behind when a client goes while it opens streams.
func (f *forwarder) serveSPDY(w *streamConn, creation time.Duration) {
	if _, err := httpstream.Handshake(f.request, w, portforward.SupportedProtocols); err != nil {
		return // Handshake has answered
	}
	pairs := newStreamPairs(f, creation, w.flight)
	conn, err := upgradeSPDY(f.request.Context(), w, pairs.accept)
	if err != nil {
		log.G(f.request.Context()).WithError(err).Debug("no SPDY for port-forward")
		return
	}
	pairs.serve(w, conn)
}

// streamPairs are the streams of a port-forward session: an error and a data
// stream for each connection, which have a request ID in common.
type streamPairs struct {
	forwarder *forwarder
	creation  time.Duration
	flight    *inFlight

	mu      sync.Mutex
	refused bool
	waiting map[string]*streamPair // without their other half
	streams map[httpstream.Stream]struct{}
}

type streamPair struct {
	port       int32 // of the data stream
	data, errs httpstream.Stream
	expiry     *time.Timer
	release    func() // gives the connection back to the quota
}

func newStreamPairs(f *forwarder, creation time.Duration, flight *inFlight) *streamPairs {
	return &streamPairs{
		forwarder: f, creation: creation, flight: flight,
		waiting: map[string]*streamPair{}, streams: map[httpstream.Stream]struct{}{},
	}
}

// serve returns when the client has gone.
func (s *streamPairs) serve(w *streamConn, conn *spdystream.Connection) {
	select {
	case <-conn.CloseChan():
	case <-s.forwarder.request.Context().Done():
	}
	w.gone()
	s.refuse()
	_ = conn.Close()
}

// accept is a streamHandler.
func (s *streamPairs) accept(stream *spdystream.Stream) error {
	header, err := parseForwardHeader(stream)
	if err != nil {
		return err
	}
	// A stream that is refused before it was replied to is one that the client could
	// not open: kubectl drops that connection, and keeps the others.
	if err := s.reserve(header); err != nil {
		return err
	}
	if err := reply(stream); err != nil {
		return err
	}
	pair, err := s.add(header, &countedStream{stream, s.flight})
	if pair != nil {
		go s.run(pair) // ends with the connection
	}
	return err
}

// reserve makes place for a pair with the first of its streams.
func (s *streamPairs) reserve(header forwardHeader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused {
		return errSessionEnded
	}
	if s.waiting[header.requestID] != nil {
		return nil
	}
	release, err := s.forwarder.connections.acquire()
	if err != nil {
		return err
	}
	pair := &streamPair{release: release}
	pair.expiry = time.AfterFunc(s.creation, func() { s.expire(header.requestID, pair) })
	s.waiting[header.requestID] = pair
	return nil
}

var errSessionEnded = errors.New("the session has ended")

// add returns the pair that stream completes, if it does.
func (s *streamPairs) add(header forwardHeader, stream httpstream.Stream) (*streamPair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused {
		return nil, errSessionEnded
	}
	pair := s.waiting[header.requestID]
	if pair == nil {
		return nil, fmt.Errorf("request %q took too long", header.requestID)
	}
	half := &pair.errs
	if header.data {
		half, pair.port = &pair.data, header.port
	}
	if *half != nil {
		return nil, fmt.Errorf("a second stream of its type for request %q", header.requestID)
	}
	*half = stream
	s.streams[stream] = struct{}{}
	if pair.data == nil || pair.errs == nil {
		return nil, nil
	}
	pair.expiry.Stop()
	delete(s.waiting, header.requestID)
	return pair, nil
}

// run serves a connection.
func (s *streamPairs) run(pair *streamPair) {
	defer pair.release()
	err := s.forwarder.run(pair.port, pair.data, pair.errs)
	_ = pair.errs.Close()
	if err == nil {
		_ = pair.data.Close() // what was written still arrives
	}
	release(pair.data)
	release(pair.errs)
	s.forget(pair.data, pair.errs)
}

// expire ends a pair of which the client has opened one stream only.
func (s *streamPairs) expire(requestID string, pair *streamPair) {
	s.mu.Lock()
	late := s.waiting[requestID] == pair
	if late {
		delete(s.waiting, requestID)
	}
	s.mu.Unlock()
	if !late {
		return
	}
	pair.release()
	log.G(s.forwarder.request.Context()).WithField("request", requestID).Debug("port-forward with one stream only")
	if pair.errs != nil {
		_, _ = io.WriteString(pair.errs, "timed out waiting for the data stream")
		_ = pair.errs.Close()
		s.end(pair.errs)
	}
	if pair.data != nil {
		s.end(pair.data)
	}
}

func (s *streamPairs) end(stream httpstream.Stream) {
	release(stream)
	s.forget(stream)
}

// forget lets go of streams that have ended.
func (s *streamPairs) forget(streams ...httpstream.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range streams {
		delete(s.streams, stream)
	}
}

// refuse lets no more streams in, and resets those that are.
func (s *streamPairs) refuse() {
	s.mu.Lock()
	s.refused = true
	for _, pair := range s.waiting {
		pair.expiry.Stop()
		pair.release()
	}
	streams := s.streams
	s.streams = map[httpstream.Stream]struct{}{}
	s.mu.Unlock()
	for stream := range streams {
		release(stream)
	}
}

// forwardHeader is what the header of a stream says.
type forwardHeader struct {
	port      int32
	data      bool
	requestID string
}

func parseForwardHeader(stream httpstream.Stream) (forwardHeader, error) {
	header := stream.Headers()
	port, err := parsePort(header.Get(portforward.PortHeader))
	if err != nil {
		return forwardHeader{}, err
	}
	h := forwardHeader{port: port, requestID: header.Get(portforward.PortForwardRequestIDHeader)}
	id := stream.Identifier()
	switch kind := header.Get(portforward.StreamType); kind {
	case portforward.StreamTypeData:
		h.data = true
		id -= 2
	case portforward.StreamTypeError:
	default:
		return forwardHeader{}, fmt.Errorf("invalid stream type %q", shortText(kind))
	}
	if h.requestID == "" {
		// Clients of before Kubernetes 1.2 open the error stream, and then at
		// once the data stream. Their numbers are odd.
		h.requestID = strconv.FormatUint(uint64(id), 10)
	}
	return h, nil
}
