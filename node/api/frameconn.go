package api

import (
	"net"
	"sync"
)

const (
	// spdyHeader is the length of what begins each SPDY frame.
	spdyHeader = 8
	// maxChunk is how much is sent in one frame: with its header it fills two
	// records of TLS.
	maxChunk = 32<<10 - spdyHeader
)

// frameBuffers holds []byte with room for one frame.
var frameBuffers = sync.Pool{New: func() any { b := make([]byte, 0, spdyHeader+maxChunk); return &b }}

// frameConn is the connection that the SPDY library serves. It keeps what that costs
// within bounds:
//
//   - Each frame is sent at once. The library writes one in three or more pieces, each
//     of which would become a TLS record, or a WebSocket message, and a system call.
//   - What the client sends is given to the library in small frames, and no more than
//     maxInFlight before it is read: see frameReader.
//   - Streams are replied to without the library's compressor for headers, which takes
//     0.8 MiB of memory for each connection: see reply.
//
// Like the library it relies on frames being written one after the other.
type frameConn struct {
	net.Conn
	frame *[]byte // what was written of the current frame
	in    frameReader

	replied bool // to a stream
}

// newFrameConn serves no more than maxStreams streams over conn, one after the other
// or at once; any number if that is zero. Those that read the streams count what they
// have read in flight: see countedStream. gone is called when the client sends no more.
func newFrameConn(conn net.Conn, maxStreams int, flight *inFlight, gone func()) *frameConn {
	return &frameConn{Conn: conn, in: frameReader{cutReader: cutReader{from: conn}, maxStreams: maxStreams, flight: flight, gone: gone}}
}

func (c *frameConn) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *frameConn) Write(p []byte) (int, error) {
	if c.frame == nil {
		c.frame = frameBuffers.Get().(*[]byte)
	}
	*c.frame = append(*c.frame, p...)
	if !wholeFrame(*c.frame) {
		return len(p), nil
	}
	frame := c.frame
	c.frame = nil
	if isReply(*frame) {
		*frame = appendReply((*frame)[:0], [4]byte((*frame)[spdyHeader:]), !c.replied)
		c.replied = true
	} else if isReset(*frame) {
		c.in.flight.end(streamID((*frame)[spdyHeader:]))
	}
	_, err := c.Conn.Write(*frame)
	if cap(*frame) == spdyHeader+maxChunk {
		*frame = (*frame)[:0]
		frameBuffers.Put(frame)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// wholeFrame reports whether frame has as many bytes as its header says.
func wholeFrame(frame []byte) bool {
	if len(frame) < spdyHeader {
		return false
	}
	length := int(frame[5])<<16 | int(frame[6])<<8 | int(frame[7])
	return len(frame) >= spdyHeader+length
}

// Close never fails: the SPDY library would wait for somebody to take the error.
func (c *frameConn) Close() error {
	c.in.flight.close()
	_ = c.Conn.Close()
	return nil
}
