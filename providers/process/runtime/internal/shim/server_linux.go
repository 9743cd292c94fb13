package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

// server is a shim with its container.
type server struct {
	dir      string
	spec     Spec
	spawner  *spawner
	log      *logFile
	listener *net.UnixListener

	main *child
	// terminal is the container's, if it has one.
	terminal *os.File
	stdin    *input
	outputs  []*output
	spaces   namespaces
	// terminals is the container's instance of the file system of terminals; nil is
	// the machine's.
	terminals *os.File
	oomKills  uint64
	// sessions are the commands of exec that somebody waits for.
	sessions atomic.Int32
}

// newServer prepares everything that a start needs, and listens.
func newServer(dir string) (*server, error) {
	s := &server{dir: dir}
	if err := ReadRecord(dir, SpecFile, &s.spec); err != nil {
		return s, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return s, fmt.Errorf("wait for orphans: %w", err)
	}
	_ = s.spec.Shims.Create()
	_ = s.spec.Shims.Add(os.Getpid())
	// What cannot be made finds no processes; but limits must hold.
	if err := s.spec.Group.Create(); err != nil && s.spec.Limits.Demands() {
		return s, fmt.Errorf("control group: %w", err)
	}
	if err := s.spec.Group.Limit(s.spec.Limits); err != nil {
		return s, err
	}
	s.oomKills = s.spec.Group.OOMKills()
	s.spawner = newSpawner(s.spec.Group, s.spec.Limits.Demands(), os.NewFile(lockFD, LockFile))
	if n := s.spec.Namespaces; n != nil && n.JoinPID != nil {
		s.spawner.marker = s.spec.Marker
	}
	var err error
	if s.log, err = openLog(s.spec.LogPath); err != nil {
		return s, fmt.Errorf("log: %w", err)
	}
	if err := reserve(dir, ExitFile); err != nil {
		return s, err
	}
	return s, s.listen()
}

func (s *server) listen() error {
	if err := os.Remove(filepath.Join(s.dir, SocketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return withShortPath(s.dir, func(path string) error {
		// Only our user may connect.
		defer unix.Umask(unix.Umask(0o177))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		s.listener = l
		return nil
	})
}

// begin starts the container's command, after it has written down which process
// that will be.
func (s *server) begin() error {
	if s.spec.NoProgram != "" {
		return errors.New(s.spec.NoProgram)
	}
	if s.spec.Namespaces != nil {
		terminals, err := newTerminals()
		if err != nil {
			return err
		}
		s.terminals = terminals
	}
	files, copies, err := s.streams()
	if err != nil {
		return err
	}
	own(files, s.spec.Command.User)
	l, err := s.start(files)
	closeAll(files...)
	if err != nil {
		return err
	}
	s.main = l.child
	started := Started{PID: l.pid, Start: l.child.start, ShimPID: os.Getpid(), Time: time.Now()}
	if p, err := procfs.Read(started.ShimPID); err == nil {
		started.ShimStart = p.Start
	}
	if err := WriteRecord(s.dir, StartedFile, started); err != nil {
		return errors.Join(err, l.release(false))
	}
	if s.spec.Namespaces != nil {
		s.spaces.open(l.pid)
	}
	if err := l.release(true); err != nil {
		return err
	}
	if s.spec.Namespaces != nil {
		s.spaces.open(l.pid)
	}
	for _, c := range copies {
		go c() // ends with the container's streams
	}
	go s.accept(s.listener.AcceptUnix) // ends with the shim
	return nil
}

func (s *server) start(files []*os.File) (*launch, error) {
	config := initConfig{Command: s.spec.Command, Namespaces: s.spec.Namespaces}
	var flags uintptr
	var joinPID *os.File
	if n := s.spec.Namespaces; n != nil {
		flags = unix.CLONE_NEWNS
		if n.Hostname != "" {
			flags |= unix.CLONE_NEWUTS
		}
		if n.PID {
			flags |= unix.CLONE_NEWPID
		}
		if n.JoinPID != nil {
			var err error
			if joinPID, err = n.JoinPID.open(); err != nil {
				return nil, err
			}
			defer func() { _ = joinPID.Close() }()
		}
	}
	if s.terminals != nil {
		files = append(files[:3:3], s.terminals)
	}
	return s.spawner.start(config, files, process(s.spec.TTY, flags), joinPID)
}

// open opens the PID namespace of a process, if it is still the one that is meant.
func (t *Target) open() (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", t.PID))
	if err != nil || !procfs.Alive(t.PID, t.Start) {
		closeAll(f)
		return nil, fmt.Errorf("the process %d, whose PID namespace is to be shared, has ended", t.PID)
	}
	return f, nil
}

// streams makes what the command reads from and writes to, and what is to be
// copied from there.
func (s *server) streams() (files []*os.File, copies []func(), err error) {
	if s.spec.TTY {
		return s.terminalStreams()
	}
	in, err := s.stdinPipe()
	if err != nil {
		return nil, nil, err
	}
	files = []*os.File{in}
	for _, name := range []string{"stdout", "stderr"} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(files...)
			return nil, nil, err
		}
		o := newOutput(s.log, name)
		s.outputs = append(s.outputs, o)
		files, copies = append(files, w), append(copies, func() { o.copy(r) })
	}
	return files, copies, nil
}

func (s *server) stdinPipe() (*os.File, error) {
	if !s.spec.Stdin {
		return os.Open(os.DevNull)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.stdin = &input{file: w, once: s.spec.StdinOnce}
	return r, nil
}

func (s *server) terminalStreams() ([]*os.File, []func(), error) {
	master, slave, err := openTerminal(s.terminals)
	if err != nil {
		return nil, nil, err
	}
	if s.terminal, err = pollable(master); err != nil {
		closeAll(master, slave)
		return nil, nil, err
	}
	_ = master.Close()
	if s.spec.Stdin {
		s.stdin = &input{file: s.terminal}
	}
	o := newOutput(s.log, "stdout")
	s.outputs = []*output{o}
	return []*os.File{slave, slave, slave}, []func(){func() { o.copy(s.terminal) }}, nil
}

// fail writes down that the container could not be started.
func (s *server) fail(err error) {
	if s.spawner != nil {
		s.spawner.killAll()
	}
	_ = s.spec.Group.Remove()
	_ = s.written(Exit{Code: StartErrorCode, Reason: ReasonStartError, Message: err.Error(), Time: time.Now()})
}

// drainTime is how long output is waited for after the last process has ended:
// somebody outside may hold on to a pipe.
const drainTime = 5 * time.Second

// wait waits for the container's end, and for everything in it.
func (s *server) wait() {
	<-s.main.done
	s.spawner.close()
	s.spawner.killAll()
	s.drain()
	exit := exitOf(s.main)
	if exit.Code != 0 && s.spec.Group.OOMKills() > s.oomKills {
		exit.OOM, exit.Reason = true, ReasonOOMKilled
	}
	s.waitSessions()
	s.spaces.close()
	_ = s.spec.Group.Remove()
	for pause := 10 * time.Millisecond; !s.written(exit); pause = min(2*pause, 10*time.Second) {
		// While we are here, nobody takes it for lost.
		time.Sleep(pause)
	}
}

// drain waits for the end of all outputs, and for all together no longer than drainTime.
func (s *server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	for _, o := range s.outputs {
		select {
		case <-o.done:
		case <-ctx.Done():
		}
	}
}

// written writes down how the container ended, also where the disk has become full since
// its start. There is nobody to write it for when its directory is gone.
func (s *server) written(exit Exit) bool {
	if writeReserved(s.dir, ExitFile, exit) == nil {
		return true
	}
	err := WriteRecord(s.dir, ExitFile, exit)
	return err == nil || errors.Is(err, os.ErrNotExist)
}

// waitSessions waits until the clients of exec's commands have got their ends.
func (s *server) waitSessions() {
	for end := time.Now().Add(time.Second); s.sessions.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
