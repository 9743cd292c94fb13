package relay

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
)

// What is used of HTTP/2 (RFC 9113).
const (
	prefaceSize = 24 // what a client says first
	headerSize  = 9  // of a frame

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3
	frameWindow  = 0x8

	flagEndStream = 0x1
)

// frames finds the frames in what one side of a connection says, however it comes
// in pieces.
type frames struct {
	skip   int    // of what comes now
	header []byte // as far as it has come
	stream uint32 // of the last frame
	each   func(kind, flags byte, stream uint32)
}

func newFrames(skip int, each func(kind, flags byte, stream uint32)) *frames {
	return &frames{skip: skip, header: make([]byte, 0, headerSize), each: each}
}

func (f *frames) accept(p []byte) {
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
		f.stream = binary.BigEndian.Uint32(h[5:]) & (1<<31 - 1)
		f.each(h[3], h[4], f.stream)
		f.header = f.header[:0]
	}
}

// whole reports whether the last frame has come as a whole.
func (f *frames) whole() bool { return f.skip == 0 && len(f.header) == 0 }

// window is a frame that lets the other side say more than anybody says, about
// a call, or, as call 0, in all. Without it, an answer that is longer than the
// caller was ready for when it went away has no end.
func window(stream uint32) []byte {
	const more = 1 << 30
	frame := []byte{0, 0, 4, frameWindow, 0}
	frame = binary.BigEndian.AppendUint32(frame, stream)
	return binary.BigEndian.AppendUint32(frame, more)
}

// calls are those under way on a connection.
type calls struct {
	over chan struct{} // closed when there are none, and will be none

	mu   sync.Mutex
	last uint32          // that was begun
	open map[uint32]bool // whether they were asked in full
	done bool            // no more will come
}

func newCalls() *calls { return &calls{over: make(chan struct{}), open: map[uint32]bool{}} }

// addRequest records a frame that the caller sent.
func (c *calls) addRequest(kind, flags byte, stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case frameReset:
		delete(c.open, stream)
	case frameHeaders, frameData:
		if kind == frameHeaders && stream > c.last {
			c.last = stream
			c.open[stream] = false
		}
		if _, ok := c.open[stream]; ok && flags&flagEndStream != 0 {
			c.open[stream] = true
		}
	}
}

// addResponse records a frame that the runtime sent.
func (c *calls) addResponse(kind, flags byte, stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == frameReset || (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0 {
		delete(c.open, stream)
		c.check()
	}
}

// finish says that nobody calls any more, and returns the calls that are to be
// answered still. Those that were not asked in full are none: partial is one of
// them, or 0.
func (c *calls) finish(partial uint32) (open []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	delete(c.open, partial)
	maps.DeleteFunc(c.open, func(_ uint32, asked bool) bool { return !asked })
	c.check()
	return slices.Collect(maps.Keys(c.open))
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
