package runtimestream

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	dialTimeout = 30 * time.Second
	// maxRefusal is how much of the body of a refusal is in the error.
	maxRefusal = 1 << 10
)

// Conn is a connection to the streaming server. Streams are opened before Serve is called;
// they may be written from several goroutines.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader

	streams []*Stream // the ID of the first is 1, of the second 3, and so on

	mu sync.Mutex // held while a frame is written
}

// Dial connects to a session that the runtime has prepared at address.
func Dial(ctx context.Context, address *url.URL, protocol string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime's streaming server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c := &Conn{conn: conn, in: bufio.NewReader(conn)}
	err = c.upgrade(address, protocol)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a session of the runtime's streaming server: %w", err)
	}
	return c, nil
}

func dial(ctx context.Context, address *url.URL) (net.Conn, error) {
	port := address.Port()
	switch {
	case address.Scheme == "https":
		if port == "" {
			port = "443"
		}
		// The certificate is one that the runtime has made for itself.
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(address.Hostname(), port))
	case port == "":
		port = "80"
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(address.Hostname(), port))
}

func (c *Conn) upgrade(address *url.URL, protocol string) error {
	request := &http.Request{
		Method: http.MethodPost, URL: address, Host: address.Host, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {protocol}},
	}
	if err := request.Write(c.conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.in, request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		why, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // a part is better than nothing
		return fmt.Errorf("it answers %s: %q", response.Status, why)
	}
	if got := response.Header.Get("X-Stream-Protocol-Version"); got != protocol {
		return fmt.Errorf("it has the protocol %q, not %s", got, protocol)
	}
	return nil
}

// Close closes the connection, which ends Serve and all writes.
func (c *Conn) Close() { _ = c.conn.Close() }

// Header is a header of a stream. The name is in lower case.
type Header struct{ Name, Value string }

// Stream is one stream of a connection.
type Stream struct {
	conn  *Conn
	id    uint32
	out   io.Writer
	ended bool // the runtime sends no more; only Serve uses it
}

// Open opens a stream. What the runtime sends is written to out, unless that is nil; an
// error of out is ignored, as if all had been read.
func (c *Conn) Open(out io.Writer, headers ...Header) (*Stream, error) {
	s := &Stream{conn: c, id: uint32(2*len(c.streams) + 1), out: out}
	if err := c.write(synStream(s.id, headers)); err != nil {
		return nil, fmt.Errorf("open a stream of the runtime: %w", err)
	}
	c.streams = append(c.streams, s)
	return s, nil
}

func (c *Conn) write(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(frame)
	return err
}

// maxChunk is how much is sent in one frame. A session that waits for input holds a buffer
// of it.
const maxChunk = 8 << 10

// CopyFrom sends what in has, and that it ended if that is with io.EOF. It returns at an
// error of in or of the connection, too.
func (s *Stream) CopyFrom(in io.Reader) {
	frame := make([]byte, frameHeader+maxChunk)
	for {
		n, err := in.Read(frame[frameHeader:])
		ends := errors.Is(err, io.EOF)
		if n > 0 || ends {
			setDataHeader(frame, s.id, n, ends)
			if s.conn.write(frame[:frameHeader+n]) != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		chunk := p[:min(len(p), maxChunk)]
		frame := make([]byte, frameHeader, frameHeader+len(chunk))
		setDataHeader(frame, s.id, len(chunk), false)
		if err = s.conn.write(append(frame, chunk...)); err == nil {
			n, p = n+len(chunk), p[len(chunk):]
		}
	}
	return n, err
}

// CloseWrite sends that there is no more to come.
func (s *Stream) CloseWrite() error {
	frame := make([]byte, frameHeader)
	setDataHeader(frame, s.id, 0, true)
	return s.conn.write(frame)
}

// Serve reads from the connection until the runtime has ended all of these streams. The
// error is that of a connection that ended before.
func (c *Conn) Serve(until ...*Stream) error {
	for {
		ended := true
		for _, s := range until {
			ended = ended && s.ended
		}
		if ended {
			return nil
		}
		if err := c.readFrame(); err != nil {
			return fmt.Errorf("read from the runtime's streaming server: %w", err)
		}
	}
}

func (c *Conn) readFrame() error {
	var header [frameHeader]byte
	if _, err := io.ReadFull(c.in, header[:]); err != nil {
		return err
	}
	length := int(header[5])<<16 | int(header[6])<<8 | int(header[7])
	if header[0]&0x80 == 0 {
		s := c.stream(binary.BigEndian.Uint32(header[:4]))
		if err := c.readData(s, length); err != nil {
			return err
		}
		if s != nil && header[4]&flagFin != 0 {
			s.ended = true
		}
		return nil
	}
	return c.readControl(header, length)
}

// stream returns the stream with an ID, or nil.
func (c *Conn) stream(id uint32) *Stream {
	if i := int(id / 2); id%2 == 1 && i < len(c.streams) {
		return c.streams[i]
	}
	return nil
}

// chunks holds *[maxChunk]byte for what is read.
var chunks = sync.Pool{New: func() any { return new([maxChunk]byte) }}

func (c *Conn) readData(s *Stream, length int) error {
	chunk, ok := chunks.Get().(*[maxChunk]byte)
	if !ok {
		return errors.New("there is no buffer")
	}
	defer chunks.Put(chunk)
	for length > 0 {
		n, err := c.in.Read(chunk[:min(length, maxChunk)])
		if n > 0 && s != nil && s.out != nil {
			if _, err := s.out.Write(chunk[:n]); err != nil {
				s.out = nil
			}
		}
		if err != nil {
			return err
		}
		length -= n
	}
	return nil
}

// readControl handles a control frame. The headers of replies are of no use here; their
// compression is not even looked at.
func (c *Conn) readControl(header [frameHeader]byte, length int) error {
	if length > maxControl {
		return fmt.Errorf("a control frame has %d bytes", length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	switch header[3] {
	case typeSynReply, typeHeaders, typeRstStream:
		if length < 4 {
			return errors.New("a control frame is too short")
		}
		if s := c.stream(binary.BigEndian.Uint32(body) & 0x7fffffff); s != nil && (header[3] == typeRstStream || header[4]&flagFin != 0) {
			s.ended = true
		}
	case typePing:
		return c.write(append(header[:], body...))
	}
	return nil
}
