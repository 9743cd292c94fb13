// Package lastlines keeps the last lines of a text that is read once, such as a log.
package lastlines

import (
	"bytes"
	"slices"
)

// minKept is how much is kept at least before lines that are not wanted are dropped.
const minKept = 1 << 20

// MaxBytes is how much of the last lines is kept at most: a log may have lines of any
// length.
const MaxBytes = 16 << 20

// Writer keeps the last lines of what is written to it, up to MaxBytes: of more, the whole
// lines at the end, or the end of a single line that is longer. It needs up to three times
// that.
type Writer struct {
	// Lines is how many.
	Lines int

	text  []byte
	limit int // of text, beyond which the first lines are dropped
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if len(w.text) > max(w.limit, minKept) {
		w.text = slices.Clone(w.Bytes())
		w.limit = 2 * len(w.text)
	}
	return len(p), nil
}

// Bytes returns the last lines, until the next Write.
func (w *Writer) Bytes() []byte {
	first := len(w.text) - MaxBytes
	at := len(bytes.TrimSuffix(w.text, []byte("\n")))
	for range w.Lines {
		if at = bytes.LastIndexByte(w.text[:at], '\n'); at < 0 || at < first {
			break
		}
	}
	if at+1 >= first {
		return w.text[at+1:]
	}
	if skip := bytes.IndexByte(w.text[first-1:], '\n'); skip >= 0 && skip < MaxBytes {
		first += skip // to the next line
	}
	return w.text[first:]
}
