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

// frameConn is a connection that sends each SPDY frame at once. The library
// writes a frame in three or more pieces, each of which would become a TLS
// record, or a WebSocket message, and a system call.
//
// Like the library it relies on frames being written one after the other.
type frameConn struct {
	net.Conn
	frame *[]byte // what was written of the current frame
}

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

// wholeFrame tells whether frame has as many bytes as its header says.
func wholeFrame(frame []byte) bool {
	if len(frame) < spdyHeader {
		return false
	}
	length := int(frame[5])<<16 | int(frame[6])<<8 | int(frame[7])
	return len(frame) >= spdyHeader+length
}

// Close never fails: the SPDY library would wait for somebody to take the error.
func (c *frameConn) Close() error {
	_ = c.Conn.Close()
	return nil
}
