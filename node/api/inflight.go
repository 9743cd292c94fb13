package api

import (
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
	unread  map[uint32]int // bytes, by the ID of the open stream
	closed  bool
}

func newInFlight() *inFlight {
	f := &inFlight{unread: map[uint32]int{}}
	f.changed.L = &f.mu
	return f
}

// open begins to count the data of a stream.
func (f *inFlight) open(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.unread[id] += 0
	}
}

// add waits until there is room for n bytes of a stream, and counts them. It returns
// false where nobody will read them: the stream is not open, or the connection closed.
func (f *inFlight) add(id uint32, n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if _, ok := f.unread[id]; !ok || f.closed {
			return false
		}
		if f.total == 0 || f.total+n <= maxInFlight {
			f.unread[id] += n
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
	if unread, ok := f.unread[id]; ok {
		n = min(n, unread)
		f.unread[id] -= n
		f.total -= n
		f.changed.Broadcast()
	}
}

// end forgets a stream from which nobody reads any more.
func (f *inFlight) end(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total -= f.unread[id]
	delete(f.unread, id)
	f.changed.Broadcast()
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

func (s *countedStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.flight.read(s.Identifier(), n)
	if err != nil {
		s.flight.end(s.Identifier())
	}
	return n, err
}

func (s *countedStream) Reset() error {
	defer s.flight.end(s.Identifier())
	return s.Stream.Reset()
}

// IsFinished reports whether nothing can be sent any more: see clientStream.
func (s *countedStream) IsFinished() bool {
	stream, ok := s.Stream.(interface{ IsFinished() bool })
	return ok && stream.IsFinished()
}
