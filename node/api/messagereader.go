package api

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// maxMessage is the size in which data is given to the WebSocket library, which reads
// whole messages, up to 32 MiB, into memory. It is a multiple of four, so that what is
// encoded as base64 can be decoded piece by piece.
const maxMessage = 32 << 10

// errMessage ends a connection on which something comes that is no WebSocket frame of a
// client.
var errMessage = errors.New("a WebSocket frame that is not allowed here")

// messageReader reads WebSocket frames for the library, which serves channels: the first
// byte of each message says which. It makes small messages of large ones, and of those
// that come in fragments, which the library takes for messages of their own.
//
// It calls gone before the library learns that there will be no more messages: the library
// first ends the channels, and closes the connection later. A provider would take that end
// of its input for an orderly one.
type messageReader struct {
	cutReader
	gone func()

	buffer  [16]byte
	kind    byte // the opcode of the client's message
	channel byte // and its first byte
	key     [4]byte
	at      int    // how much of the client's frame was unmasked
	rest    uint64 // of the client's frame beyond payload
	raw     bool   // the payload stays masked
}

// The opcodes of WebSocket.
const (
	wsContinuation = 0
	wsText         = 1
	wsBinary       = 2
	wsClose        = 8
	wsPong         = 10

	wsMaxControl = 125 // bytes that a control frame may have
)

func (r *messageReader) Read(p []byte) (int, error) {
	for r.empty() {
		if err := r.next(); err != nil {
			r.gone()
			return 0, err
		}
	}
	n, ofPayload, err := r.read(p)
	if ofPayload && !r.raw {
		r.unmask(p[:n])
	}
	return n, err
}

// unmask takes the client's mask off the next bytes of its frame.
func (r *messageReader) unmask(p []byte) {
	for i := range p {
		p[i] ^= r.key[r.at%len(r.key)]
		r.at++
	}
}

// next prepares the next message, or a part of the client's, to be read.
func (r *messageReader) next() error {
	if r.rest > 0 {
		r.piece()
		return nil
	}
	header := r.buffer[:2]
	if _, err := io.ReadFull(r.from, header); err != nil {
		return err
	}
	kind, length := header[0]&0x0f, uint64(header[1]&0x7f)
	if header[0]&0x70 != 0 || header[1]&0x80 == 0 {
		return errMessage // a bit that nobody has negotiated, or no mask
	}
	if kind >= wsClose {
		return r.control(kind, length)
	}
	switch length {
	case 126:
		if _, err := io.ReadFull(r.from, r.buffer[2:4]); err != nil {
			return err
		}
		length = uint64(binary.BigEndian.Uint16(r.buffer[2:]))
	case 127:
		if _, err := io.ReadFull(r.from, r.buffer[2:10]); err != nil {
			return err
		}
		length = binary.BigEndian.Uint64(r.buffer[2:])
	}
	if _, err := io.ReadFull(r.from, r.key[:]); err != nil {
		return err
	}
	r.at, r.rest, r.raw = 0, length, false
	switch {
	case kind != wsContinuation && kind != wsText && kind != wsBinary, kind == wsContinuation && r.kind == 0:
		return errMessage
	case length == 0:
		return nil // it has no channel
	case kind != wsContinuation:
		first := r.buffer[:1]
		if _, err := io.ReadFull(r.from, first); err != nil {
			return err
		}
		r.unmask(first)
		r.kind, r.channel = kind, first[0]
		r.rest--
	}
	r.piece()
	return nil
}

// control passes on a control frame.
func (r *messageReader) control(kind byte, length uint64) error {
	if kind > wsPong || length > wsMaxControl || r.buffer[0]&0x80 == 0 {
		return errMessage
	}
	if kind == wsClose {
		r.gone()
	}
	r.pending, r.payload, r.raw = r.buffer[:2], len(r.key)+int(length), true
	return nil
}

// piece makes a message of what is left of the client's frame. Its mask is zero.
func (r *messageReader) piece() {
	r.payload = int(min(r.rest, maxMessage))
	r.rest -= uint64(r.payload)
	length := r.payload + 1
	header := append(r.buffer[:0], 0x80|r.kind)
	if length <= wsMaxControl {
		header = append(header, 0x80|byte(length))
	} else {
		header = append(header, 0x80|126, byte(length>>8), byte(length))
	}
	r.pending = append(header, 0, 0, 0, 0, r.channel)
}

// messageConn is a connection whose WebSocket messages are made small.
type messageConn struct {
	net.Conn
	in messageReader
}

func newMessageConn(conn net.Conn, gone func()) *messageConn {
	return &messageConn{Conn: conn, in: messageReader{cutReader: cutReader{from: conn}, gone: gone}}
}

func (c *messageConn) Read(p []byte) (int, error) { return c.in.Read(p) }
