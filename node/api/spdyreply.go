package api

import "github.com/moby/spdystream"

// reply confirms to the client that its stream is open. A stream for which that fails must
// not stay: the library's worker would wait for ever if it came to a client's reset of a
// stream that was not replied to.
//
// The library's own reply makes a compressor for its headers, of which there are none,
// and keeps it. Refuse marks the stream as replied to and sends a reset of a kind that
// nobody else sends; frameConn puts a reply in its place.
func reply(stream *spdystream.Stream) error { return stream.Refuse() }

// The frames of SPDY/3 that are needed here.
const (
	spdySynStream    = 1
	spdySynReply     = 2
	spdyRstStream    = 3
	spdySettings     = 4
	spdyPing         = 6
	spdyGoAway       = 7
	spdyHeaders      = 8
	spdyWindowUpdate = 9

	spdyRefusedStream = 3 // a status of RST_STREAM

	flagFin = 1 // the sender has no more data for the stream
)

// isReply reports whether frame is what reply has had the library write.
func isReply(frame []byte) bool {
	return isReset(frame) && frame[15] == spdyRefusedStream
}

// isReset reports whether frame ends a stream at once.
func isReset(frame []byte) bool {
	return len(frame) == 16 && frame[0] == 0x80 && frame[3] == spdyRstStream
}

var (
	// noHeaders is a compressed block of no headers: a stored block of four bytes, their
	// number, and an empty one, which has the other end take what it got.
	noHeaders = []byte{0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}
	// zlibHeader begins the compressed headers of a connection. It names the
	// dictionary of SPDY/3.
	zlibHeader = []byte{0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2}
)

// appendReply appends a SYN_REPLY without headers to frame.
func appendReply(frame []byte, streamID [4]byte, first bool) []byte {
	length := len(streamID) + len(noHeaders)
	if first {
		length += len(zlibHeader)
	}
	frame = append(frame, 0x80, 3, 0, spdySynReply, 0, 0, 0, byte(length))
	frame = append(frame, streamID[:]...)
	if first {
		frame = append(frame, zlibHeader...)
	}
	return append(frame, noHeaders...)
}
