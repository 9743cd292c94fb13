package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// slowReader is how long a container's output waits for an attached session that
// does not read, before the session is given up.
const slowReader = 10 * time.Second

// output carries one stream of the container to the log and to attached
// clients.
type output struct {
	lines lines
	done  chan struct{}

	mu       sync.Mutex
	ended    bool
	attached map[*os.File]bool
}

func newOutput(log *logFile, stream string) *output {
	return &output{lines: lines{log: log, stream: stream}, done: make(chan struct{}), attached: map[*os.File]bool{}}
}

// copy reads until the last writer is gone.
func (o *output) copy(from *os.File) {
	defer close(o.done)
	defer o.end()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			o.lines.add(buffer[:n])
			o.send(buffer[:n])
		}
		// A terminal whose last user is gone answers EIO.
		if err != nil {
			return
		}
	}
}

func (o *output) send(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.attached {
		_ = f.SetWriteDeadline(time.Now().Add(slowReader))
		if _, err := f.Write(data); err != nil {
			o.drop(f)
		}
	}
}

// attach sends what comes from now on to f too, and closes it at the end.
func (o *output) attach(f *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attached[f] = true
	if o.ended {
		o.drop(f)
	}
}

func (o *output) detach(f *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(f)
}

func (o *output) drop(f *os.File) {
	if o.attached[f] {
		delete(o.attached, f)
		_ = f.Close()
	}
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines.end()
	o.ended = true
	for f := range o.attached {
		o.drop(f)
	}
}

// input carries what attached sessions send to the container.
type input struct {
	mu   sync.Mutex
	file *os.File
	// once closes it after the first session.
	once bool
}

// copy sends what f has, and closes f.
func (i *input) copy(f *os.File) {
	defer func() { _ = f.Close() }()
	if i == nil || i.file == nil {
		return
	}
	_, _ = io.Copy(i, f)
	if i.once {
		_ = i.file.Close()
	}
}

// Write is one after the other: sessions may be attached at the same time.
func (i *input) Write(data []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.file.Write(data)
}

// own gives pipes and terminals to a user, so that its programs may open
// /dev/stdout. Everything else is left alone: /dev/null is the machine's.
func own(files []*os.File, user *User) {
	if user == nil {
		return
	}
	for _, f := range files {
		var stat unix.Stat_t
		if unix.Fstat(int(f.Fd()), &stat) != nil {
			continue
		}
		// The major numbers of terminals below /dev/pts.
		major := unix.Major(stat.Rdev)
		terminal := stat.Mode&unix.S_IFMT == unix.S_IFCHR && major >= 136 && major <= 143
		if terminal || stat.Mode&unix.S_IFMT == unix.S_IFIFO {
			_ = f.Chown(int(user.UID), int(user.GID))
		}
	}
}

// pollable is the same file, such that reads and writes end when it is closed.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
