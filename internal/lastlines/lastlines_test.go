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
