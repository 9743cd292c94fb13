package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/moby/spdystream/spdy"
)

func newFrameReader(from io.Reader, flight *inFlight, gone func()) *frameReader {
	return &frameReader{cutReader: cutReader{from: from}, flight: flight, gone: gone}
}

func dataFrame(id byte, flags byte, data []byte) []byte {
	return append([]byte{0, 0, 0, id, flags, byte(len(data) >> 16), byte(len(data) >> 8), byte(len(data))}, data...)
}

func controlFrame(kind byte, payload []byte) []byte {
	return append([]byte{0x80, 3, 0, kind, 0, byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload))}, payload...)
}

// Large frames of data come in small ones, the last of which has the flags; settings
// do not come at all.
func TestFramesAreCut(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	ping := controlFrame(spdyPing, []byte{0, 0, 0, 1})
	var in, want bytes.Buffer
	for _, frame := range [][]byte{controlFrame(spdySettings, make([]byte, 12)), dataFrame(3, 0, nil), dataFrame(3, 1, data), ping, controlFrame(spdyWindowUpdate, make([]byte, 8)), dataFrame(5, 0, []byte("x"))} {
		in.Write(frame)
	}
	want.Write(dataFrame(3, 0, nil))
	for len(data) > maxDataFrame {
		want.Write(dataFrame(3, 0, data[:maxDataFrame]))
		data = data[maxDataFrame:]
	}
	want.Write(dataFrame(3, 1, data))
	want.Write(ping)
	want.Write(dataFrame(5, 0, []byte("x")))
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(in.Bytes()), "byte by byte": iotest.OneByteReader(bytes.NewReader(in.Bytes()))} {
		if got, err := io.ReadAll(newFrameReader(r, nil, func() {})); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, want.Len())
		}
	}
}

// What no client has to send, and what could cost much, ends the connection.
func TestFramesThatAreNotAllowed(t *testing.T) {
	syn := controlFrame(spdySynStream, make([]byte, 10))
	unidirectional := synFrame(1)
	unidirectional[4] = 2
	for name, in := range map[string][]byte{
		"headers":              controlFrame(spdyHeaders, make([]byte, 10)),
		"a reply":              controlFrame(spdySynReply, make([]byte, 10)),
		"an unknown kind":      controlFrame(77, nil),
		"long headers":         controlFrame(spdySynStream, make([]byte, maxSynStream+1)),
		"a one-way stream":     unidirectional,
		"no headers":           controlFrame(spdySynStream, make([]byte, minSynStream-1)),
		"a frame in a ping":    controlFrame(spdyPing, append([]byte{0, 0, 0, 1}, syn...)),
		"a frame in a reset":   controlFrame(spdyRstStream, append(make([]byte, 8), syn...)),
		"a frame in a goaway":  controlFrame(spdyGoAway, append(make([]byte, 8), syn...)),
		"a short ping":         controlFrame(spdyPing, nil),
		"long settings":        controlFrame(spdySettings, make([]byte, maxSkipped+1)),
		"too many streams":     slices.Concat(synFrame(1), synFrame(3), synFrame(5)),
		"a cut header":         syn[:5],
		"settings in one part": controlFrame(spdySettings, make([]byte, 100))[:50],
	} {
		reader := newFrameReader(bytes.NewReader(in), nil, func() {})
		reader.maxStreams = 2
		_, err := io.ReadAll(reader)
		if !errors.Is(err, errFrame) && !errors.Is(err, io.ErrUnexpectedEOF) && name != "settings in one part" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The client is known to have gone before the library learns that nothing more comes.
func TestFramesEndAfterTheClientIsGone(t *testing.T) {
	first := synFrame(1)
	for name, end := range map[string][]byte{
		"a goaway":             controlFrame(spdyGoAway, make([]byte, 8)),
		"a frame of no client": controlFrame(77, nil),
		"a frame that is cut":  first[:5],
		"data that is cut":     dataFrame(1, 0, []byte("data"))[:spdyHeader],
	} {
		gone := false
		r := newFrameReader(bytes.NewReader(slices.Concat(first, end)), newInFlight(), func() { gone = true })
		if _, err := io.ReadFull(r, make([]byte, len(first))); err != nil || gone {
			t.Errorf("%s: %v, and gone is %v, after a frame", name, err, gone)
		}
		_, err := io.ReadFull(r, make([]byte, len(end)+1))
		if err == nil || !gone {
			t.Errorf("%s: %v, and the client is not known to have gone", name, err)
		}
	}
}

// Replies that are written without the library's compressor are read by the library.
func TestRepliesAreUnderstood(t *testing.T) {
	var wire bytes.Buffer
	for id := range byte(5) {
		wire.Write(appendReply(nil, [4]byte{0, 0, 0, id + 1}, id == 0))
	}
	framer, err := spdy.NewFramer(io.Discard, &wire)
	if err != nil {
		t.Fatal(err)
	}
	for id := range 5 {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(id, err)
		}
		if reply, ok := frame.(*spdy.SynReplyFrame); !ok || reply.StreamId != spdy.StreamId(id+1) || len(reply.Headers) > 0 {
			t.Errorf("reply %d: %+v", id, frame)
		}
	}
}

// IDs of streams rise. A client that repeats one has its connection closed: the library
// answers each with a goroutine, however many of them wait for the client to read.
func TestStreamIDsRise(t *testing.T) {
	for name, c := range map[string]struct {
		ids []uint32
		err error
	}{
		"one after the other": {[]uint32{1, 3, 5}, nil},
		"with gaps":           {[]uint32{3, 9, maxStreamID}, nil},
		"the same":            {[]uint32{1, 3, 3}, errFrame},
		"an older one":        {[]uint32{1, 3, 1}, errFrame},
		"too close":           {[]uint32{1, 2}, errFrame},
		"more than there are": {[]uint32{maxStreamID, maxStreamID + 2}, errFrame},
		"with a bit too many": {[]uint32{1, 1<<31 | 3}, errFrame},
	} {
		var in bytes.Buffer
		for _, id := range c.ids {
			in.Write(controlFrame(spdySynStream, binary.BigEndian.AppendUint32(make([]byte, 0, 10), id)[:10]))
		}
		flight := newInFlight()
		_, err := io.ReadAll(newFrameReader(&in, flight, func() {}))
		opened := len(c.ids)
		if c.err != nil {
			opened--
		}
		if !errors.Is(err, c.err) || len(flight.inputs) != opened {
			t.Errorf("%s: %v, and %d streams", name, err, len(flight.inputs))
		}
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add(append(controlFrame(spdySynStream, make([]byte, 10)), dataFrame(1, 1, make([]byte, 5000))...))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, _ := io.ReadAll(newFrameReader(bytes.NewReader(in), nil, func() {}))
		for len(out) >= spdyHeader {
			length := int(out[5])<<16 | int(out[6])<<8 | int(out[7])
			if length > maxDataFrame {
				t.Fatalf("a frame of %d bytes", length)
			}
			if out = out[spdyHeader:]; len(out) < length {
				return // the input was cut
			}
			out = out[length:]
		}
	})
}
