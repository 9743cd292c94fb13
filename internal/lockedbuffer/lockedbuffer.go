// Package lockedbuffer collects what tests read while it is written: output and logs.
package lockedbuffer

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that may be written to and read at the same time. The zero
// value is empty.
type Buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
