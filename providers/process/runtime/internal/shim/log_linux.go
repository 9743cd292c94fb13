package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLine is how long a line of the log gets before it is cut into parts.
const maxLine = 16 << 10

// logFile writes the CRI's log format: each line has a time, its stream, and F
// (full) or P (a part: the line goes on with the next one of the stream).
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	last time.Time
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	if path == "" {
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	return l, l.reopen()
}

// reopen goes on in a new file of the same name, after the old one was renamed.
func (l *logFile) reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = f
	return nil
}

// write writes one line. What cannot be written (the disk is full) is lost: the
// container goes on.
func (l *logFile) write(stream string, line []byte, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	// Readers since a time rely on times that do not go back, as the clock may.
	if now := time.Now().Round(0); now.After(l.last) {
		l.last = now
	}
	tag := " P "
	if full {
		tag = " F "
	}
	buffer := make([]byte, 0, len(line)+64)
	buffer = l.last.AppendFormat(buffer, time.RFC3339Nano)
	buffer = append(append(append(buffer, ' '), stream...), tag...)
	buffer = append(append(buffer, line...), '\n')
	_, _ = l.file.Write(buffer)
}

// lines cuts what is written to it into lines for the log.
type lines struct {
	log     *logFile
	stream  string
	pending []byte
}

func (l *lines) add(data []byte) {
	for len(data) > 0 {
		room := maxLine - len(l.pending)
		end := bytes.IndexByte(data[:min(len(data), room+1)], '\n')
		switch {
		case end >= 0:
			l.log.write(l.stream, append(l.pending, data[:end]...), true)
			l.pending, data = l.pending[:0], data[end+1:]
		case len(data) > room:
			l.log.write(l.stream, append(l.pending, data[:room]...), false)
			l.pending, data = l.pending[:0], data[room:]
		default:
			l.pending, data = append(l.pending, data...), nil
		}
	}
}

// end writes a last line that has no end, as a part: it reads as it was.
func (l *lines) end() {
	if len(l.pending) > 0 {
		l.log.write(l.stream, l.pending, false)
		l.pending = nil
	}
}
