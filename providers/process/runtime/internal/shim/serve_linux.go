package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// accept serves connections, which next has, until the shim ends.
func (s *server) accept(next func() (*net.UnixConn, error)) {
	for {
		conn, err := next()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for want of files or memory, say, which may pass
			time.Sleep(50 * time.Millisecond)
			continue
		}
		go s.serve(&Conn{unix: conn}) // ends with the connection
	}
}

// serve answers the one request of a connection.
func (s *server) serve(c *Conn) {
	var request Request
	if err := c.Receive(&request); err != nil {
		_ = c.Close()
		return
	}
	switch request.Op {
	case OpWatch:
		_ = c.Send(Response{PID: s.main.pid})
		// It ends with this process, if the other side does not end it.
		_ = c.Receive(&request)
	case OpExec:
		s.exec(c, request)
	case OpAttach:
		s.attach(c, request)
	case OpTerminal:
		s.sendTerminal(c)
	default:
		answer(c, s.do(request))
	}
	_ = c.Close()
}

func answer(c *Conn, err error) {
	var r Response
	if err != nil {
		r.Error = err.Error()
	}
	_ = c.Send(r)
}

// do does what is done at once.
func (s *server) do(request Request) error {
	switch request.Op {
	case OpSignal:
		return s.spawner.signal(s.main, syscall.Signal(request.Signal))
	case OpKill:
		if err := s.spawner.signal(s.main, syscall.SIGKILL); err != nil {
			return err
		}
		s.spec.Group.Kill()
		return nil
	case OpReopen:
		return s.log.reopen()
	case OpResize:
		return s.resize(request)
	}
	return fmt.Errorf("the shim knows no %q: was it started by another version?", request.Op)
}

func (s *server) resize(request Request) error {
	if s.terminal == nil {
		return errors.New("the container has no terminal")
	}
	return SetSize(s.terminal, request.Rows, request.Columns)
}

// SetSize sets the size of a terminal, which may be closed meanwhile.
func SetSize(terminal *os.File, rows, columns uint16) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	return errors.Join(err, failed)
}

// exec runs a command beside the container's own, with the streams that came.
func (s *server) exec(c *Conn, request Request) {
	files := c.TakeFiles()
	defer closeAll(files...)
	s.sessions.Add(1)
	defer s.sessions.Add(-1)
	child, err := s.execStart(request, files)
	closeAll(files...)
	if err != nil {
		answer(c, err)
		return
	}
	_ = c.Send(Response{PID: child.pid})
	// The client goes away or asks to kill it: either way it is killed.
	stopped := make(chan struct{})
	var killing sync.Mutex
	go func() { // waited for below
		defer close(stopped)
		_ = c.Receive(&Request{})
		killing.Lock()
		defer killing.Unlock()
		select {
		case <-child.done:
		default:
			s.spawner.killSession(child)
		}
	}()
	<-child.done
	killing.Lock()
	exit := exitOf(child)
	_ = c.Send(Response{Exit: &exit})
	killing.Unlock()
	// Until the other side has read it.
	<-stopped
}

func (s *server) execStart(request Request, files []*os.File) (*child, error) {
	if request.Command == nil || len(files) != 3 {
		return nil, errors.New("exec needs a command and three streams")
	}
	own(files, request.Command.User)
	config := initConfig{Command: *request.Command}
	var joinPID *os.File
	if s.spec.Namespaces != nil {
		config.Join, joinPID = true, s.spaces.pid
		files = append(files[:3:3], s.spaces.mount, s.spaces.uts, s.spaces.ipc, s.spaces.cgroup)
	}
	l, err := s.spawner.start(config, files, process(request.TTY, 0), joinPID)
	if err != nil {
		return nil, err
	}
	if err := l.release(true); err != nil {
		return nil, err
	}
	return l.child, nil
}

// attach connects a session, until it goes or the container ends.
func (s *server) attach(c *Conn, request Request) {
	var in *os.File
	var outs []*os.File
	for i, f := range c.TakeFiles() {
		usable, err := pollable(f)
		_ = f.Close()
		if err != nil {
			closeAll(append(outs, in)...)
			answer(c, err)
			return
		}
		if i == 0 && request.Streams[0] {
			in = usable
		} else {
			outs = append(outs, usable)
		}
	}
	detach := s.connect(request.Streams, outs)
	defer detach()
	if in != nil {
		go s.stdin.copy(in) // ends with in, which is closed below
		defer func() { _ = in.Close() }()
	}
	answer(c, nil)
	for {
		var more Request
		if err := c.Receive(&more); err != nil {
			return
		}
		if more.Op == OpResize {
			_ = s.resize(more)
		}
	}
}

// connect sends the container's output to outs: those of stdout and stderr that
// are asked for, in this order.
func (s *server) connect(streams [3]bool, outs []*os.File) (detach func()) {
	var undo []func()
	for i, wanted := range streams[1:] {
		if !wanted || len(outs) == 0 {
			continue
		}
		f := outs[0]
		outs = outs[1:]
		if i >= len(s.outputs) {
			// A terminal has one stream.
			_ = f.Close()
			continue
		}
		s.outputs[i].attach(f)
		undo = append(undo, func() { s.outputs[i].detach(f) })
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}
}
