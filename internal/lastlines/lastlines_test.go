package lastlines

import (
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	for _, c := range []struct {
		lines      int
		text, want string
	}{
		{2, "", ""},
		{2, "a\n", "a\n"},
		{2, "a\nb\nc\n", "b\nc\n"},
		{2, "a\nb\nc", "b\nc"},
		{2, "a\n\n\n", "\n\n"},
		{3, "a\nb\n", "a\nb\n"},
		{0, "a\nb\n", ""},
		{2, strings.Repeat("x", 3*minKept) + "\n" + strings.Repeat("y\n", minKept) + "z\n", "y\nz\n"},
		{1, "a\n" + strings.Repeat("x", 3*minKept), strings.Repeat("x", 3*minKept)},
	} {
		w := &Writer{Lines: c.lines}
		for part := c.text; part != ""; { // as logs come
			n := min(len(part), 1<<15+1)
			if _, err := w.Write([]byte(part[:n])); err != nil {
				t.Fatal(err)
			}
			part = part[n:]
		}
		if got := string(w.Bytes()); got != c.want {
			t.Errorf("the last %d lines of %.20q are %.20q, want %.20q", c.lines, c.text, got, c.want)
		}
	}
}

// Lines are kept up to a bound, however long and many they are.
func TestMaxBytes(t *testing.T) {
	for name, c := range map[string]struct {
		lines      int
		line, want string
	}{
		"one line":   {3, strings.Repeat("x", 3*MaxBytes), strings.Repeat("x", MaxBytes)},
		"its end":    {1, strings.Repeat("x", 3*MaxBytes) + "\n", strings.Repeat("x", MaxBytes-1) + "\n"},
		"many lines": {MaxBytes, strings.Repeat("yyyyyyy\n", 3*MaxBytes/8), strings.Repeat("yyyyyyy\n", MaxBytes/8)},
	} {
		w := &Writer{Lines: c.lines}
		most := 0
		for part := c.line; part != ""; {
			n := min(len(part), 1<<18+1)
			if _, err := w.Write([]byte(part[:n])); err != nil {
				t.Fatal(err)
			}
			part = part[n:]
			most = max(most, cap(w.text))
		}
		if got := string(w.Bytes()); got != c.want {
			t.Errorf("%s: %d bytes %.20q, want %d", name, len(got), got, len(c.want))
		}
		if most > 3*MaxBytes {
			t.Errorf("%s: %d bytes are kept", name, most)
		}
	}
}
