package shim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initConfig is what the shim sends an init over its pipe, as a line of JSON.
// The line goLine after it lets the init go on: by then the shim has written
// down which process it is. An end without it means that the shim is gone.
type initConfig struct {
	Command Command `json:"command"`
	// Namespaces are new ones to furnish; Join enters those whose descriptors
	// are there.
	Namespaces *Namespaces `json:"namespaces,omitempty"`
	Join       bool        `json:"join,omitempty"`
}

const goLine = "go\n"

// The files of an init, after its three streams and the lock (lockFD). It holds
// on to the lock until it is its command or has ended: until then nobody could
// know whose process it is, and the holder of the lock may rely on there being none.
const (
	configFD = lockFD + 1 + iota
	errorFD
	mountFD
	utsFD
	ipcFD
	cgroupFD
)

// terminalsFD is the file system of terminals for new namespaces, in the place of the
// first of those to enter.
const terminalsFD = mountFD

// runInit becomes a command. It returns only if that failed, and
// writes why to the error pipe.
func runInit() int {
	// What follows is set for a thread, and it is this one that becomes the
	// command.
	runtime.LockOSThread()
	for fd := lockFD; fd <= cgroupFD; fd++ {
		unix.CloseOnExec(fd)
	}
	config, err := readConfig()
	if err != nil {
		return 1
	}
	err = config.become()
	_, _ = unix.Write(errorFD, []byte(err.Error()))
	return StartErrorCode
}

func readConfig() (*initConfig, error) {
	pipe := os.NewFile(configFD, "config")
	defer func() { _ = pipe.Close() }()
	r := bufio.NewReader(pipe)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var config initConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(r)
	if err != nil || string(answer) != goLine {
		return nil, errors.New("the shim is gone")
	}
	return &config, nil
}

// become enters the namespaces, gives up rights and becomes the command.
func (c *initConfig) become() error {
	// Done twice: what follows may take long, and the change of user forgets it.
	if err := dieWithShim(); err != nil {
		return err
	}
	if c.Join {
		if err := join(); err != nil {
			return err
		}
	}
	if c.Namespaces != nil {
		if err := c.Namespaces.furnish(); err != nil {
			return err
		}
	}
	if err := ownKeyring(); err != nil {
		return err
	}
	if err := c.Command.restrict(); err != nil {
		return err
	}
	if err := dieWithShim(); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := c.Command.enterDir(); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	defaultSignals()
	keepStreams()
	err := syscall.Exec(c.Command.Path, c.Command.Args, c.Command.Env)
	return fmt.Errorf("exec %s: %w", c.Command.Path, err)
}

// enterDir enters the working directory. The user makes it, who thereby gets no further
// than its command would, by links in a volume, say.
func (c *Command) enterDir() error {
	if c.MakeDir {
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			return err
		}
	}
	return os.Chdir(c.Dir)
}

// join enters the namespaces of a container; the PID namespace was entered by being
// started.
func join() error {
	// A thread that shares its root and working directory with others cannot enter
	// a mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter the container's namespaces: %w", err)
	}
	for _, space := range []struct {
		name     string
		fd, kind int
	}{{"UTS", utsFD, unix.CLONE_NEWUTS}, {"IPC", ipcFD, unix.CLONE_NEWIPC}, {"cgroup", cgroupFD, unix.CLONE_NEWCGROUP}, {"mount", mountFD, unix.CLONE_NEWNS}} {
		if err := unix.Setns(space.fd, space.kind); err != nil {
			return fmt.Errorf("enter the container's %s namespace: %w", space.name, err)
		}
	}
	return nil
}

// dieWithShim has the kernel kill this process when the shim ends.
func dieWithShim() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tie the process to its shim: %w", err)
	}
	// The shim may have ended before: then nobody reads the error pipe.
	poll := []unix.PollFd{{Fd: errorFD}}
	if n, err := unix.Poll(poll, 0); err == nil && n > 0 && poll[0].Revents&unix.POLLERR != 0 {
		return errors.New("the shim is gone")
	}
	return nil
}

// defaultSignals undoes that our parent ignores signals: what is caught
// is back at its default once the command runs, and what is ignored is not.
func defaultSignals() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCHLD, unix.SIGPIPE)
	// Package os/signal leaves the first real-time signals to the C library,
	// which this process does not have.
	var standard [4]uint64 // a zero sigaction, for any order of its fields: SIG_DFL
	for s := uintptr(firstRealTime); s <= lastSignal; s++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&standard)), 0, unsafe.Sizeof(standard[0]), 0, 0)
	}
}

// The real-time signals, as the kernel counts them.
const (
	firstRealTime = 32
	lastSignal    = 64
)
