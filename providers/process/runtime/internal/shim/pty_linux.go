package shim

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// ttyGroup is the group of terminals on every distribution, and in containers.
const ttyGroup = "5"

// maxTerminals is how many terminals a container may have: the kernel has 4096 for
// all of the machine.
const maxTerminals = "128"

// newTerminals makes an instance of the file system of terminals, which is attached
// nowhere yet. Nobody else's terminals are in it.
func newTerminals() (*os.File, error) {
	type result struct {
		tree *os.File
		err  error
	}
	made := make(chan result, 1)
	go func() { // waited for below
		// An instance that is made in the machine's mount namespace has a share in the
		// terminals that the kernel keeps back for the machine. The thread that has left
		// it ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			made <- result{err: fmt.Errorf("mount namespace for terminals: %w", err)}
			return
		}
		tree, err := newFileSystem("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
			"ptmxmode", "0666", "mode", "0620", "gid", ttyGroup, "max", maxTerminals)
		made <- result{tree, err}
	}()
	r := <-made
	return r.tree, r.err
}

// openTerminal makes a terminal in an instance, and the machine's where there is
// none. It goes by the instance's file system and by no path: a container can do
// nothing about it.
func openTerminal(instance *os.File) (master, slave *os.File, err error) {
	if instance == nil {
		return pty.Open()
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(fdOf(instance), "ptmx", flags, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("unlock a terminal: %w", err), master.Close())
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, uintptr(flags))
	if errno != 0 {
		return nil, nil, errors.Join(fmt.Errorf("the other side of a terminal: %w", errno), master.Close())
	}
	return master, os.NewFile(peer, "pts"), nil
}

// terminalTime is how long a shim may take to make a terminal.
const terminalTime = 10 * time.Second

// OpenTerminal makes a terminal for a command of exec, where the container has its
// own namespaces: only its shim can. The master can be closed while it is read.
func OpenTerminal(dir string) (master, slave *os.File, err error) {
	conn, err := Dial(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }()
	conn.GiveUpAfter(terminalTime)
	var response Response
	if err := errors.Join(conn.Send(Request{Op: OpTerminal}), conn.Receive(&response)); err != nil {
		return nil, nil, err
	}
	if response.Error != "" {
		return nil, nil, errors.New(response.Error)
	}
	files := conn.TakeFiles()
	if len(files) != 2 {
		closeAll(files...)
		return nil, nil, errors.New("the shim has sent no terminal")
	}
	master, err = pollable(files[0])
	if err != nil {
		closeAll(files...)
		return nil, nil, err
	}
	return master, files[1], files[0].Close()
}

// sendTerminal answers OpTerminal.
func (s *server) sendTerminal(c *Conn) {
	master, slave, err := openTerminal(s.terminals)
	if err != nil {
		answer(c, err)
		return
	}
	_ = c.Send(Response{}, master, slave)
	closeAll(master, slave)
}
