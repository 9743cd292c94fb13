package api

import (
	"errors"
	"sync"

	"k8s.io/streaming/pkg/httpstream"
)

// maxInFlight is how many bytes of a client's data a SPDY connection may hold that
// nobody has read yet. The library alone would keep 50 frames for each of its five
// workers.
const maxInFlight = 64 << 10

// inFlight counts what a client has sent on the open streams of a SPDY connection and
// nobody has read yet. Its methods are safe for concurrent use.
type inFlight struct {
	mu      sync.Mutex
	changed sync.Cond
	total   int
	inputs  map[uint32]input // by the ID of the open stream
	closed  bool
}

// input is what a client sends on a stream.
type input struct {
	unread   int  // bytes
	complete bool // nobody waits for more
}

func newInFlight() *inFlight {
	f := &inFlight{inputs: map[uint32]input{}}
	f.changed.L = &f.mu
	return f
}

// open begins to count the data of a stream.
func (f *inFlight) open(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.inputs[id] = input{}
	}
}

// add waits until there is room for n bytes of a stream, and counts them. It returns
// false where nobody will read them: the stream is not open, or the connection closed.
func (f *inFlight) add(id uint32, n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		in, ok := f.inputs[id]
		if !ok || f.closed {
			return false
		}
		if f.total == 0 || f.total+n <= maxInFlight {
			in.unread += n
			f.inputs[id] = in
			f.total += n
			return true
		}
		f.changed.Wait()
	}
}

// read counts n bytes of a stream as read.
func (f *inFlight) read(id uint32, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in, ok := f.inputs[id]; ok {
		n = min(n, in.unread)
		in.unread -= n
		f.inputs[id] = in
		f.total -= n
		f.changed.Broadcast()
	}
}

// complete records that all of a stream's data has come, or that we have closed it: what
// ends it from then on cuts nothing off.
func (f *inFlight) complete(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in, ok := f.inputs[id]; ok {
		in.complete = true
		f.inputs[id] = in
	}
}

// end forgets a stream from which nobody reads any more, and reports whether it was open
// and incomplete.
func (f *inFlight) end(id uint32) (cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in, ok := f.inputs[id]
	f.total -= in.unread
	delete(f.inputs, id)
	f.changed.Broadcast()
	return ok && !in.complete
}

// close forgets all streams, and lets nobody wait any longer.
func (f *inFlight) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.changed.Broadcast()
}

// countedStream is a stream whose data is counted in flight until it is read, or the
// stream ends.
type countedStream struct {
	httpstream.Stream
	flight *inFlight
}

// errCut is how a stream ends that the client has reset, or whose connection has ended,
// before all of its data has come. The library's io.EOF is for those, too.
var errCut = errors.New("the client has broken off the stream")

func (s *countedStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.flight.read(s.Identifier(), n)
	if err != nil && s.flight.end(s.Identifier()) {
		err = errCut
	}
	return n, err
}

// Close ends what is sent. Clients reset a connection when they have it all.
func (s *countedStream) Close() error {
	s.flight.complete(s.Identifier())
	return s.Stream.Close()
}

// Reset ends the stream. It is no client's doing, and so cuts nothing off.
func (s *countedStream) Reset() error {
	s.flight.end(s.Identifier())
	return s.Stream.Reset()
}

// IsFinished reports whether nothing can be sent any more: see clientStream.
func (s *countedStream) IsFinished() bool {
	stream, ok := s.Stream.(interface{ IsFinished() bool })
	return ok && stream.IsFinished()
}
