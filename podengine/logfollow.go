package podengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"
)

const (
	// firstLogPoll and lastLogPoll are how often a followed log is read: less and
	// less often while nothing comes.
	firstLogPoll = 100 * time.Millisecond
	lastLogPoll  = time.Second
	// logStateEvery is how often the runtime is asked whether the container runs,
	// where the engine does not know it to.
	logStateEvery = 10 * time.Second
	// maxLogFailures is how long the runtime may fail to say that.
	maxLogFailures = time.Minute
	// logChunk is how much is read at once, and maxLogRecord how long a line of the
	// file may be: runtimes split lines at 16 KiB.
	logChunk     = 8 << 10
	maxLogRecord = 1 << 20
)

// followedLog is the log of a container, with what is added to it until the container
// ends. It polls the file: watches of inotify are few on a host, and all of a user's
// processes share them. There is no goroutine: Read waits. Close may be called during
// a Read, which it ends. A log that cannot be read on is an error, and not its end.
type followedLog struct {
	ctx    context.Context
	cancel context.CancelFunc
	path   string
	stream string // "Stdout" or "Stderr"; empty for both
	opts   *logs.LogOptions
	// running reports whether more may come.
	running func(context.Context) (bool, error)

	mu     sync.Mutex // for Close, which may come during a Read
	file   *os.File
	closed bool

	// The rest is Read's.
	record    []byte // the beginning of a line that is not complete
	out       bytes.Buffer
	newLine   bool // the next record begins a line
	remaining int64
	ended     bool // the container had ended before the last read
	replaced  bool // the file was seen to be replaced before the last read
	delay     time.Duration
	chunk     []byte
}

// followLog opens a log to be followed. ctx ends it, as Close does.
func followLog(ctx context.Context, path, stream string, opts *logs.LogOptions, running func(context.Context) (bool, error)) (*followedLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if opts.TailLines != nil {
		if err := seekTail(file, *opts.TailLines); err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("find the last lines of the log: %w", err)
		}
	}
	l := &followedLog{path: path, stream: stream, opts: opts, running: running, file: file,
		newLine: true, remaining: ptr.Deref(opts.LimitBytes, -1), delay: firstLogPoll, chunk: make([]byte, logChunk)}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l, nil
}

// Read implements io.Reader.
func (l *followedLog) Read(p []byte) (int, error) {
	for l.out.Len() == 0 {
		if l.remaining == 0 {
			return 0, io.EOF
		}
		more, err := l.fill()
		if err != nil {
			return 0, err
		}
		if !more && l.out.Len() == 0 {
			return 0, io.EOF
		}
	}
	return l.out.Read(p)
}

// Close implements io.Closer.
func (l *followedLog) Close() error {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	return l.file.Close()
}

// fill reads on, waiting if there is nothing at the moment. It returns false at the
// end of the log.
func (l *followedLog) fill() (more bool, err error) {
	n, err := l.file.Read(l.chunk)
	if n > 0 {
		l.delay = firstLogPoll
		return true, l.accept(l.chunk[:n])
	}
	switch {
	case l.ctx.Err() != nil:
		return false, l.ctx.Err()
	case err != nil && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("read the log: %w", err)
	case l.replaced:
		l.replaced = false
		return true, l.reopen()
	case l.ended:
		return false, nil
	}
	timer := time.NewTimer(l.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
		return false, l.ctx.Err()
	}
	l.delay = min(2*l.delay, lastLogPoll)
	// What is noticed here counts once the file was read to its end again: it may
	// have been written to before.
	if l.replaced, err = l.isReplaced(); err != nil || l.replaced {
		return true, err
	}
	running, err := l.running(l.ctx)
	l.ended = err == nil && !running
	return true, err
}

// isReplaced reports whether another file has the name of the one that is read, as
// after a rotation. None at all is one that is not there yet.
func (l *followedLog) isReplaced() (bool, error) {
	now, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	before, err := l.file.Stat()
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	return !os.SameFile(before, now), nil
}

// reopen goes on with the file that has the name now.
func (l *followedLog) reopen() error {
	file, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = file.Close()
		return io.ErrClosedPipe
	}
	_ = l.file.Close()
	l.file, l.record = file, nil
	return nil
}

// take takes what was read of the file.
func (l *followedLog) accept(data []byte) error {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			if len(l.record)+len(data) > maxLogRecord {
				return fmt.Errorf("a record of the log is longer than %d bytes", maxLogRecord)
			}
			l.record = append(l.record, data...)
			return nil
		}
		record := data[:end+1]
		if len(l.record) > 0 {
			record = append(l.record, record...)
			l.record = nil
		}
		data = data[end+1:]
		if parsed, ok := parseLogRecord(record); ok { // others are damaged, which nobody can help
			l.write(parsed)
		}
	}
	return nil
}

// write adds a record to what Read returns, if it is wanted.
func (l *followedLog) write(r logRecord) {
	begins := l.newLine
	l.newLine = len(r.text) == 0 || r.text[len(r.text)-1] == '\n'
	if r.at.Before(l.opts.Since) || !l.wants(r.stream) {
		return
	}
	before := l.out.Len()
	if l.opts.Timestamp && begins {
		l.out.WriteString(r.at.Format(logs.RFC3339NanoFixed))
		l.out.WriteByte(' ')
	}
	l.out.Write(r.text)
	if l.remaining >= 0 {
		l.remaining -= int64(l.out.Len() - before)
		if l.remaining < 0 {
			l.out.Truncate(l.out.Len() + int(l.remaining))
			l.remaining = 0
		}
	}
}

func (l *followedLog) wants(stream runtimeapi.LogStreamType) bool {
	switch l.stream {
	case corev1.LogStreamStdout:
		return stream == runtimeapi.Stdout
	case corev1.LogStreamStderr:
		return stream == runtimeapi.Stderr
	}
	return true
}

// seekTail puts the offset of a file to the beginning of its last n lines.
func seekTail(file *os.File, n int64) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, logChunk)
	start, found := int64(0), int64(-1) // the last line ends in a newline, too
	for at := end; at > 0 && found < n; {
		size := min(at, int64(len(buf)))
		at -= size
		if _, err := file.ReadAt(buf[:size], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for i := size - 1; i >= 0 && found < n; i-- {
			if buf[i] != '\n' {
				if at+i == end-1 {
					found++ // the last line is not complete
				}
				continue
			}
			if found++; found == n {
				start = at + i + 1
			}
		}
	}
	_, err = file.Seek(start, io.SeekStart)
	return err
}
