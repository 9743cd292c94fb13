package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// wsFrame is a frame as a client sends it.
func wsFrame(fin bool, kind byte, payload []byte) []byte {
	first := kind
	if fin {
		first |= 0x80
	}
	frame := []byte{first}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	key := []byte{1, 22, 133, 244}
	frame = append(frame, key...)
	for i, b := range payload {
		frame = append(frame, b^key[i%4])
	}
	return frame
}

func newMessageReader(from io.Reader, gone func()) *messageReader {
	return &messageReader{cutReader: cutReader{from: from}, gone: gone}
}

type message struct {
	kind    byte
	payload []byte
}

// readMessages reads the frames that a messageReader makes.
func readMessages(t *testing.T, in []byte) (messages []message) {
	t.Helper()
	for len(in) > 0 {
		kind, length, header := in[0]&0x0f, int(in[1]&0x7f), 2
		if in[0]&0x80 == 0 || in[1]&0x80 == 0 {
			t.Fatalf("a frame begins with %x", in[:2])
		}
		if length == 126 {
			length, header = int(binary.BigEndian.Uint16(in[2:])), 4
		}
		key, payload := in[header:header+4], bytes.Clone(in[header+4:header+4+length])
		for i := range payload {
			payload[i] ^= key[i%4]
		}
		messages = append(messages, message{kind, payload})
		in = in[header+4+length:]
	}
	return messages
}

// Large messages, and those in fragments, become small ones on the same channel; control
// frames, also between fragments, stay as they are.
func TestMessagesAreCut(t *testing.T) {
	data := make([]byte, 3*maxMessage+1000)
	for i := range data {
		data[i] = byte(i % 251)
	}
	var in bytes.Buffer
	in.Write(wsFrame(true, wsBinary, append([]byte{0}, data...)))
	in.Write(wsFrame(true, wsBinary, []byte{4}))
	in.Write(wsFrame(true, wsText, nil))
	in.Write(wsFrame(false, wsText, []byte("0aGVs")))
	in.Write(wsFrame(true, 9, []byte("ping")))
	in.Write(wsFrame(true, wsContinuation, []byte("bG8=")))
	in.Write(wsFrame(true, wsClose, []byte{3, 232}))
	for name, from := range map[string]io.Reader{"at once": bytes.NewReader(in.Bytes()), "byte by byte": iotest.OneByteReader(bytes.NewReader(in.Bytes()))} {
		out, err := io.ReadAll(newMessageReader(from, func() {}))
		if err != nil {
			t.Fatal(name, err)
		}
		var got []byte
		messages := readMessages(t, out)
		for len(messages) > 0 && messages[0].kind == wsBinary && messages[0].payload[0] == 0 {
			if len(messages[0].payload) > maxMessage+1 {
				t.Errorf("%s: a message of %d bytes", name, len(messages[0].payload))
			}
			got, messages = append(got, messages[0].payload[1:]...), messages[1:]
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: got %d bytes, want %d, or others", name, len(got), len(data))
		}
		want := []message{{wsBinary, []byte{4}}, {wsText, []byte("0aGVs")}, {9, []byte("ping")}, {wsText, []byte("0bG8=")}, {wsClose, []byte{3, 232}}}
		if len(messages) != len(want) {
			t.Fatalf("%s: got %q, want %q", name, messages, want)
		}
		for i := range want {
			if messages[i].kind != want[i].kind || !bytes.Equal(messages[i].payload, want[i].payload) {
				t.Errorf("%s: got %q, want %q", name, messages[i], want[i])
			}
		}
	}
}

func TestMessagesThatAreNotAllowed(t *testing.T) {
	unmasked := wsFrame(true, wsBinary, []byte{0})
	unmasked[1] &= 0x7f
	reserved := wsFrame(true, wsBinary, []byte{0})
	reserved[0] |= 0x40
	for name, in := range map[string][]byte{
		"no mask":                          unmasked,
		"a reserved bit":                   reserved,
		"an unknown kind":                  wsFrame(true, 3, []byte{0}),
		"an unknown control":               wsFrame(true, 11, nil),
		"a long control":                   wsFrame(true, 9, make([]byte, 126)),
		"a control in fragments":           wsFrame(false, 9, nil),
		"a continuation of nothing":        wsFrame(true, wsContinuation, []byte{0}),
		"an empty continuation of nothing": wsFrame(true, wsContinuation, nil),
	} {
		if _, err := io.ReadAll(newMessageReader(bytes.NewReader(in), func() {})); !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The client is known to have gone before the library gets the last of what it sent.
func TestMessagesEndAfterTheClientIsGone(t *testing.T) {
	data := wsFrame(true, wsBinary, []byte("\xff\x00"))
	for name, end := range map[string][]byte{
		"an orderly close":     wsFrame(true, wsClose, []byte{3, 232}),
		"a frame of no client": wsFrame(true, 3, []byte{0}),
		"a frame that is cut":  data[:3],
	} {
		gone := false
		r := newMessageReader(bytes.NewReader(append(bytes.Clone(data), end...)), func() { gone = true })
		if _, err := io.ReadFull(r, make([]byte, len(data))); err != nil || gone {
			t.Errorf("%s: %v, and gone is %v, after a message", name, err, gone)
		}
		if _, _ = r.Read(make([]byte, 1)); !gone {
			t.Errorf("%s: the client is not known to have gone", name)
		}
	}
}

func FuzzMessageReader(f *testing.F) {
	f.Add(append(wsFrame(true, wsBinary, make([]byte, 2*maxMessage)), wsFrame(false, wsText, []byte("0abc"))...))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := io.ReadAll(newMessageReader(bytes.NewReader(in), func() {}))
		if len(out) > 4*len(in)+32 {
			t.Errorf("%d bytes of %d, %v", len(out), len(in), err)
		}
	})
}
