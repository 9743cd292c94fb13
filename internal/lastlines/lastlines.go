// Package lastlines keeps the last lines of a text that is read once, such as a log.
package lastlines

import (
	"bytes"
	"slices"
)

// minKept is how much is kept at least before lines that are not wanted are dropped.
const minKept = 1 << 20

// Writer keeps the last lines of what is written to it.
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
	at := len(bytes.TrimSuffix(w.text, []byte("\n")))
	for range w.Lines {
		at = bytes.LastIndexByte(w.text[:at], '\n')
		if at < 0 {
			return w.text
		}
	}
	return w.text[at+1:]
}
