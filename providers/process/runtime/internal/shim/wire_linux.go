package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Request is one line to a shim. Files go along with it where Op says so.
type Request struct {
	// Op is one of the Op constants.
	Op string `json:"op"`
	// Signal is for OpSignal.
	Signal int `json:"signal,omitempty"`
	// Command and TTY are for OpExec.
	Command *Command `json:"command,omitempty"`
	TTY     bool     `json:"tty,omitempty"`
	// Streams says which of stdin, stdout and stderr come along for OpAttach.
	Streams [3]bool `json:"streams,omitzero"`
	// Rows and Columns are for OpResize.
	Rows    uint16 `json:"rows,omitempty"`
	Columns uint16 `json:"columns,omitempty"`
}

// What a shim does.
const (
	// OpWatch answers at once; the connection ends with the container.
	OpWatch = "watch"
	// OpSignal signals the container's first process.
	OpSignal = "signal"
	// OpKill kills all processes of the container.
	OpKill = "kill"
	// OpReopen opens the log again.
	OpReopen = "reopen"
	// OpExec runs a command whose streams come along: three files. It answers
	// with the process, then with its exit. A connection that is closed before
	// kills it; so does OpKill on the connection.
	OpExec = "exec"
	// OpAttach connects streams that come along. OpResize may follow.
	OpAttach = "attach"
	// OpTerminal makes a terminal for a command of exec, where the container has its
	// own namespaces: its two sides come along with the answer.
	OpTerminal = "terminal"
	// OpResize sets the size of the terminal.
	OpResize = "resize"
)

// Response is one line from a shim.
type Response struct {
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"`
}

// maxMessage is more than the kernel lets a command line and environment be.
const maxMessage = 8 << 20

// Conn carries lines of JSON, and files along with them.
type Conn struct {
	unix  *net.UnixConn
	data  []byte
	files []*os.File
}

// Dial connects to the shim of a container's directory.
func Dial(dir string) (*Conn, error) {
	var conn *Conn
	err := withShortPath(dir, func(path string) error {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			conn = &Conn{unix: c}
		}
		return err
	})
	return conn, err
}

// withShortPath calls f with a path of the socket that is short enough for a
// socket (108 bytes), however long dir is.
func withShortPath(dir string, f func(path string) error) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return f(filepath.Join(fmt.Sprintf("/proc/self/fd/%d", fd), SocketFile))
}

// Close closes the connection and the files that came and were not taken.
func (c *Conn) Close() error {
	for _, f := range c.files {
		_ = f.Close()
	}
	return c.unix.Close()
}

// Send sends v as a line, with files. The files stay the caller's.
func (c *Conn) Send(v any, files ...*os.File) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.unix.WriteMsgUnix(data, rights, nil)
	for err == nil && n < len(data) {
		var more int
		more, err = c.unix.Write(data[n:])
		n += more
	}
	return err
}

// Receive reads a line into v. The files that came along are had
// with TakeFiles.
func (c *Conn) Receive(v any) error {
	for {
		if line, rest, ok := bytes.Cut(c.data, []byte{'\n'}); ok {
			c.data = rest
			return json.Unmarshal(line, v)
		}
		if len(c.data) > maxMessage {
			return errors.New("a line on the shim's socket is too long")
		}
		if err := c.read(); err != nil {
			return err
		}
	}
}

func (c *Conn) read() error {
	buffer, rights := make([]byte, 32<<10), make([]byte, unix.CmsgSpace(3*4))
	n, oob, _, _, err := c.unix.ReadMsgUnix(buffer, rights)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			c.files = append(c.files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	if n == 0 {
		return net.ErrClosed
	}
	c.data = append(c.data, buffer[:n]...)
	return nil
}

// GiveUpAfter has Receive fail when nothing comes for so long.
func (c *Conn) GiveUpAfter(d time.Duration) { _ = c.unix.SetReadDeadline(time.Now().Add(d)) }

// TakeFiles returns the files that came; they are the caller's from then on.
func (c *Conn) TakeFiles() []*os.File {
	files := c.files
	c.files = nil
	return files
}
