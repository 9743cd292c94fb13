package providertest

import (
	"strings"
	"sync"
)

// logBuffer keeps the end of what is written to it.
type logBuffer struct {
	mu   sync.Mutex
	data []byte
}

const mostLog = 256 << 10

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if len(b.data) > 2*mostLog {
		b.data = append([]byte(nil), b.data[len(b.data)-mostLog:]...)
	}
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(string(b.data))
}
