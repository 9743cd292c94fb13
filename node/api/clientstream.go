package api

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// clientStream is a stream of a client as a provider gets it.
type clientStream struct {
	ctx    context.Context    // ends when the client has gone
	cancel context.CancelFunc // of ctx
	io.ReadWriteCloser
	reset atomic.Bool // the client has reset it, and a read or write has met that
}

// Read fails with the context's error when the client has gone: io.EOF would
// mean that it has sent all that it wanted to. A client that breaks off the stream has
// gone, too, and the context ends first: what gets the input must not live to take it
// for a whole one.
func (s *clientStream) Read(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(p)
	if errors.Is(err, errCut) {
		s.reset.Store(true)
		s.cancel()
	}
	return n, s.reason(err)
}

// Write sends p in pieces that no protocol finds too large, and that let others
// on the same connection have their turn.
func (s *clientStream) Write(p []byte) (int, error) {
	written := 0
	for {
		if s.finished() {
			s.reset.Store(true)
			return written, io.ErrClosedPipe
		}
		n, err := s.ReadWriteCloser.Write(p[written:min(len(p), written+maxChunk)])
		written += n
		if err != nil || written >= len(p) {
			return written, s.reason(err)
		}
	}
}

// finished reports a SPDY stream that we have closed or that the client has
// reset. The library's Write would go on.
func (s *clientStream) finished() bool {
	stream, ok := s.ReadWriteCloser.(interface{ IsFinished() bool })
	return ok && stream.IsFinished()
}

func (s *clientStream) reason(err error) error {
	if err != nil && s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	return err
}

// release unblocks reads from stream. A SPDY stream that is merely
// closed would go on to take input, and block its connection with it.
func release(stream io.Closer) {
	if s, ok := stream.(interface{ Reset() error }); ok {
		_ = s.Reset()
		return
	}
	_ = stream.Close()
}
