package relay

import (
	"encoding/binary"
	"sync"
)

// What is used of HTTP/2 (RFC 9113).
const (
	prefaceSize = 24 // what a client says first
	headerSize  = 9  // of a frame

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3

	flagEndStream = 0x1
)

// frames finds the frames in what one side of a connection says, however it comes
// in pieces.
type frames struct {
	skip   int    // of what comes now
	header []byte // as far as it has come
	each   func(kind, flags byte, stream uint32)
}

func newFrames(skip int, each func(kind, flags byte, stream uint32)) *frames {
	return &frames{skip: skip, header: make([]byte, 0, headerSize), each: each}
}

func (f *frames) take(p []byte) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		n := min(headerSize-len(f.header), len(p))
		f.header, p = append(f.header, p[:n]...), p[n:]
		if len(f.header) < headerSize {
			return
		}
		h := f.header
		f.skip = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		f.each(h[3], h[4], binary.BigEndian.Uint32(h[5:])&(1<<31-1))
		f.header = f.header[:0]
	}
}

// calls are those under way on a connection.
type calls struct {
	over chan struct{} // closed when there are none, and will be none

	mu   sync.Mutex
	last uint32 // that was begun
	open map[uint32]struct{}
	done bool // no more will come
}

func newCalls() *calls { return &calls{over: make(chan struct{}), open: map[uint32]struct{}{}} }

// asked takes a frame of who calls.
func (c *calls) asked(kind, _ byte, stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case kind == frameHeaders && stream > c.last: // and not one that ends a call
		c.last = stream
		c.open[stream] = struct{}{}
	case kind == frameReset:
		delete(c.open, stream)
	}
}

// answered takes a frame of who is called.
func (c *calls) answered(kind, flags byte, stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == frameReset || (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0 {
		delete(c.open, stream)
		c.check()
	}
}

// finish says that nobody calls any more.
func (c *calls) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	c.check()
}

func (c *calls) check() {
	if c.done && len(c.open) == 0 {
		select {
		case <-c.over:
		default:
			close(c.over)
		}
	}
}
