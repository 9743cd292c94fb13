package relay

import (
	"encoding/binary"
	"slices"
	"testing"
)

// Frames are found however the bytes are cut into pieces.
func TestFrames(t *testing.T) {
	sent := make([]byte, prefaceSize)
	appendFrame := func(kind, flags byte, stream uint32, size int) {
		sent = append(sent, byte(size>>16), byte(size>>8), byte(size), kind, flags)
		sent = binary.BigEndian.AppendUint32(sent, stream)
		sent = append(sent, make([]byte, size)...)
	}
	const settings, endHeaders = 0x4, 0x4
	appendFrame(settings, 0, 0, 0)
	appendFrame(frameHeaders, endHeaders, 1, 7)
	appendFrame(frameData, flagEndStream, 1, 300)
	appendFrame(frameReset, 0, 1<<31|3, 4) // the first bit is to be ignored
	type frame struct {
		kind, flags byte
		stream      uint32
	}
	want := []frame{{settings, 0, 0}, {frameHeaders, endHeaders, 1}, {frameData, flagEndStream, 1}, {frameReset, 0, 3}}
	for _, size := range []int{1, 2, 7, 100, 10_000} {
		var got []frame
		f := newFrames(prefaceSize, func(kind, flags byte, stream uint32) { got = append(got, frame{kind, flags, stream}) })
		for piece := range slices.Chunk(sent, size) {
			f.accept(piece)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: %v, want %v", size, got, want)
		}
	}
}

// A connection is over when the caller is gone and each call was answered.
func TestCalls(t *testing.T) {
	isOver := func(c *calls) bool {
		select {
		case <-c.over:
			return true
		default:
			return false
		}
	}
	c := newCalls()
	for stream := uint32(1); stream <= 9; stream += 2 {
		c.addRequest(frameHeaders, 0, stream)
	}
	for stream := uint32(1); stream <= 7; stream += 2 { // and 9 only half
		c.addRequest(frameData, flagEndStream, stream)
	}
	c.addResponse(frameHeaders, 0, 1)
	c.addResponse(frameData, flagEndStream, 1)
	c.addRequest(frameReset, 0, 3)
	if open := c.finish(7); !slices.Equal(open, []uint32{5}) {
		t.Errorf("open are %v, want 5", open)
	}
	if isOver(c) {
		t.Error("it is over before all calls are")
	}
	c.addResponse(frameReset, 0, 5)
	if !isOver(c) {
		t.Error("it is not over")
	}
	none := newCalls()
	none.finish(0)
	if !isOver(none) {
		t.Error("without calls it is not over")
	}
}
