package datachannel

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
)

// The layout is that which the client of AWS documents for its messages.
func TestLayout(t *testing.T) {
	m := New(TypeInput, 258, KindSize, []byte("payload"))
	data := m.Marshal()
	digest := sha256.Sum256([]byte("payload"))
	for what, field := range map[string]struct {
		at   int
		want []byte
	}{
		"length of the header":  {0, []byte{0, 0, 0, 116}},
		"type":                  {4, []byte("input_stream_data" + strings.Repeat(" ", 15))},
		"version":               {36, []byte{0, 0, 0, 1}},
		"sequence number":       {48, []byte{0, 0, 0, 0, 0, 0, 1, 2}},
		"flags":                 {56, make([]byte, 8)},
		"lower half of the ID":  {64, m.ID[8:]},
		"upper half of the ID":  {72, m.ID[:8]},
		"digest":                {80, digest[:]},
		"kind of the payload":   {112, []byte{0, 0, 0, 3}},
		"length of the payload": {116, []byte{0, 0, 0, 7}},
		"payload":               {120, []byte("payload")},
	} {
		if got := data[field.at : field.at+len(field.want)]; !bytes.Equal(got, field.want) {
			t.Errorf("%s: %x, want %x", what, got, field.want)
		}
	}
	parsed, err := Parse(data)
	if err != nil || parsed.Type != m.Type || parsed.Sequence != m.Sequence || parsed.ID != m.ID || parsed.Kind != m.Kind || string(parsed.Payload) != "payload" {
		t.Errorf("%+v, %v", parsed, err)
	}
}

func TestBrokenMessages(t *testing.T) {
	good := New(TypeOutput, 1, KindData, []byte("payload")).Marshal()
	for what, change := range map[string]func([]byte) []byte{
		"cut":            func(b []byte) []byte { return b[:100] },
		"short header":   func(b []byte) []byte { b[3] = 4; return b },
		"long header":    func(b []byte) []byte { b[0] = 0xff; return b },
		"other payload":  func(b []byte) []byte { b[125] = '!'; return b },
		"payload is cut": func(b []byte) []byte { return b[:123] },
	} {
		if m, err := Parse(change(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %+v", what, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(New(TypeOutput, 1, KindData, []byte("payload")).Marshal())
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Parse(data) })
}
