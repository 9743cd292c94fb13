package api

import (
	"encoding/binary"
	"errors"
	"io"
)

const (
	// maxDataFrame is the size in which data is given to the SPDY library.
	maxDataFrame = 2 << 10
	// minSynStream and maxSynStream are how long a frame may be that begins a stream. The
	// headers of one have some hundred bytes; compressed ones can become a thousand times
	// as long.
	minSynStream = 10
	maxSynStream = 1 << 10
	// pingLength and endLength are how long a ping is, and a reset or a "go away". The
	// library reads no more, and would take the rest of a longer one for the next frame.
	pingLength = 4
	endLength  = 8
	// streamIDLength is the length of the ID that the payload of some frames begins with.
	streamIDLength = 4
	// maxStreamID is the highest ID that SPDY has.
	maxStreamID = 1<<31 - 1
	// maxSkipped is how long a frame may be that has no meaning here.
	maxSkipped = 64 << 10
)

// errFrame ends a connection on which something comes that no client has to send.
var errFrame = errors.New("a SPDY frame that is not allowed here")

// frameReader reads SPDY frames for the library. It cuts frames of data, which may
// have 16 MiB, into smaller ones, waits while too much of it is unread, leaves out
// settings and window updates, which the library ignores, and data of streams that are
// not open, and fails at what clients of a kubelet never send.
//
// It calls gone before the library learns that nothing more comes: from then on that can
// send nothing either, but does not close the connection.
type frameReader struct {
	cutReader
	gone       func()
	flight     *inFlight // nil: nothing is counted
	maxStreams int       // 0 for any number
	streams    int
	nextID     uint32 // the lowest that the next stream may have

	header [spdyHeader + streamIDLength]byte
	rest   int  // of the client's frame of data beyond payload
	last   byte // the flags of the client's frame, which the last of ours gets
}

func (r *frameReader) Read(p []byte) (n int, err error) {
	for err == nil && r.empty() {
		err = r.next()
	}
	if err == nil {
		n, _, err = r.read(p)
	}
	if err != nil {
		r.gone()
	}
	return n, err
}

// next prepares the next frame to be read.
func (r *frameReader) next() error {
	if r.rest > 0 {
		return r.data()
	}
	if _, err := io.ReadFull(r.from, r.header[:spdyHeader]); err != nil {
		return err
	}
	length := int(binary.BigEndian.Uint32(r.header[4:]) & 0xffffff)
	if r.header[0]&0x80 == 0 {
		r.rest, r.last = length, r.header[4]
		return r.data()
	}
	switch binary.BigEndian.Uint16(r.header[2:]) {
	case spdySettings, spdyWindowUpdate:
		if length > maxSkipped {
			return errFrame
		}
		_, err := io.CopyN(io.Discard, r.from, int64(length))
		return err
	case spdySynStream:
		return r.opened(length)
	case spdyPing:
		if length != pingLength {
			return errFrame
		}
	case spdyRstStream, spdyGoAway:
		if length != endLength {
			return errFrame
		}
		if r.header[3] == spdyGoAway {
			r.gone()
		}
	default:
		return errFrame
	}
	r.pending, r.payload = r.header[:spdyHeader], length
	return nil
}

// opened reads the ID of a stream that begins. IDs rise. For each that does not, the
// library would start a goroutine that sends a reset, and read on, also while the client
// takes nothing of what it is sent.
//
// Nor has a stream any flag but that of its end: of one with the other, which is for a
// server's, the library would send no reset, by which frameConn learns that it was refused.
func (r *frameReader) opened(length int) error {
	if r.streams++; r.maxStreams > 0 && r.streams > r.maxStreams || length < minSynStream || length > maxSynStream {
		return errFrame
	}
	if r.header[4]&^flagFin != 0 {
		return errFrame
	}
	if _, err := io.ReadFull(r.from, r.header[spdyHeader:]); err != nil {
		return err
	}
	id := binary.BigEndian.Uint32(r.header[spdyHeader:])
	if id < r.nextID || id > maxStreamID {
		return errFrame
	}
	r.nextID = id + 2
	r.pending, r.payload = r.header[:], length-streamIDLength
	if r.flight != nil {
		r.flight.open(id)
		r.ended(id, r.header[4])
	}
	return nil
}

// ended records the end of a stream's data, if a frame with these flags is that.
func (r *frameReader) ended(id uint32, flags byte) {
	if r.flight != nil && flags&flagFin != 0 {
		r.flight.complete(id)
	}
}

// streamID is what the four bytes of an ID mean.
func streamID(b []byte) uint32 { return binary.BigEndian.Uint32(b) &^ (1 << 31) }

// data makes a frame of what is left of the client's, or leaves it out.
func (r *frameReader) data() error {
	n := min(r.rest, maxDataFrame)
	id := streamID(r.header[:])
	if r.flight != nil && !r.flight.add(id, n) {
		n, r.rest = r.rest, 0
		_, err := io.CopyN(io.Discard, r.from, int64(n))
		return err
	}
	r.payload = n
	r.rest -= n
	flags := uint32(0)
	if r.rest == 0 {
		flags = uint32(r.last) << 24
		r.ended(id, r.last)
	}
	binary.BigEndian.PutUint32(r.header[4:], flags|uint32(r.payload))
	r.pending = r.header[:spdyHeader]
	return nil
}
