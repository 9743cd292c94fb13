package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

// spawner starts processes and waits for everything that ends below this shim.
//
// One thread starts them all, and never ends: the kernel kills what asked to die
// with its parent when the thread that started it ends.
type spawner struct {
	requests chan func()
	group    cgroup.Group
	// limited says that nothing may run outside of group.
	limited bool
	// lock is the lock of the container's directory.
	lock *os.File
	// marker is the environment entry of the container's processes, if these are in the PID
	// namespace of another: there orphans become children of that one's first process.
	marker string

	mu      sync.Mutex
	closed  bool
	running map[int]*child
}

// child is a process that the spawner has started.
type child struct {
	pid   int
	start uint64
	// done is closed when it has ended, and status and ended are set.
	done   chan struct{}
	status syscall.WaitStatus
	ended  time.Time
}

func newSpawner(group cgroup.Group, limited bool, lock *os.File) *spawner {
	s := &spawner{requests: make(chan func()), group: group, limited: limited, lock: lock, running: map[int]*child{}}
	go s.serve() // ends with the shim
	go s.reap()  // ends with the shim
	return s
}

func (s *spawner) serve() {
	runtime.LockOSThread()
	for f := range s.requests {
		f()
	}
}

// launch is a process between its start and the moment it becomes its command.
type launch struct {
	*child
	config *os.File
	errors *os.File
}

// start starts an init that waits. Its streams are the first three files; more
// may follow.
func (s *spawner) start(config initConfig, files []*os.File, attr syscall.SysProcAttr, joinPID *os.File) (*launch, error) {
	configR, configW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errorR, errorW, err := os.Pipe()
	if err != nil {
		closeAll(configR, configW)
		return nil, err
	}
	defer closeAll(configR, errorW)
	l := &launch{config: configW, errors: errorR}
	all := append([]*os.File{files[0], files[1], files[2], s.lock, configR, errorW}, files[3:]...)
	if l.child, err = s.fork(all, attr, joinPID); err != nil {
		closeAll(configW, errorR)
		return nil, fmt.Errorf("start a process: %w", err)
	}
	// What is outside of the group is found in another way, but has no limits.
	if err := s.group.Add(l.pid); err != nil && s.limited {
		_ = l.release(false)
		return nil, fmt.Errorf("control group: %w", err)
	}
	line, err := json.Marshal(config)
	if err == nil {
		_, err = configW.Write(append(line, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, l.release(false))
	}
	return l, nil
}

// release lets the init become its command, or end, and returns why it could not.
func (l *launch) release(run bool) error {
	if run {
		if _, err := io.WriteString(l.config, goLine); err != nil {
			run = false
		}
	}
	_ = l.config.Close()
	defer func() { _ = l.errors.Close() }()
	message, err := io.ReadAll(l.errors)
	switch {
	case err != nil:
		return err
	case len(message) > 0:
		return errors.New(string(message))
	case !run:
		return errors.New("the process ended before it was started")
	}
	return nil
}

// fork starts the executable as an init, on the thread for that.
func (s *spawner) fork(files []*os.File, attr syscall.SysProcAttr, joinPID *os.File) (*child, error) {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
		// The command expects its reads and writes to block.
		_ = unix.SetNonblock(int(fds[i]), false)
	}
	var c *child
	var err error
	done := make(chan struct{})
	s.requests <- func() {
		defer close(done)
		c, err = s.forkHere(&syscall.ProcAttr{Dir: "/", Env: []string{}, Files: fds, Sys: &attr}, joinPID)
	}
	<-done
	runtime.KeepAlive(files)
	return c, err
}

func (s *spawner) forkHere(attr *syscall.ProcAttr, joinPID *os.File) (*child, error) {
	if joinPID != nil {
		if err := unix.Setns(int(joinPID.Fd()), unix.CLONE_NEWPID); err != nil {
			return nil, fmt.Errorf("enter the container's PID namespace: %w", err)
		}
		defer leavePID()
	}
	// Held so that the process is known before it can be waited for.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the container has ended")
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{Name, "init"}, attr)
	if err != nil {
		return nil, err
	}
	c := &child{pid: pid, done: make(chan struct{})}
	if p, err := procfs.Read(pid); err == nil {
		c.start = p.Start
	}
	s.running[pid] = c
	return c, nil
}

// leavePID has this thread's next processes start in our own PID namespace again.
func leavePID() {
	own, err := unix.Open("/proc/self/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.Setns(own, unix.CLONE_NEWPID)
	_ = unix.Close(own)
}

// reap waits for all that end: our own processes and those that lost their
// parents.
func (s *spawner) reap() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for {
		for s.reapOne() {
		}
		<-signals
	}
}

func (s *spawner) reapOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if c, ok := s.running[pid]; ok {
		delete(s.running, pid)
		c.status, c.ended = status, time.Now()
		close(c.done)
	}
	return true
}

// signal signals a process that has not been waited for, and no other.
func (s *spawner) signal(c *child, signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[c.pid] != c {
		return nil
	}
	return syscall.Kill(c.pid, signal)
}

// close lets no more processes start.
func (s *spawner) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// killAll kills everything that runs below this shim, and the container's orphans, and
// returns when nothing does.
func (s *spawner) killAll() {
	none := 0
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		s.group.Kill()
		switch {
		case !s.killWhere(func(procfs.Process) bool { return true }):
			none = 0
		case s.marker == "" || none > 0:
			return
		default: // a process that is just becoming another program shows no marker
			none++
			pause = 10 * time.Millisecond
		}
		time.Sleep(pause)
	}
}

// killSession kills a process with all of its session and all that descends from
// it.
func (s *spawner) killSession(c *child) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if s.killTree(c) {
			return
		}
		time.Sleep(pause)
	}
}

// killTree is one round of killSession. It reports whether nothing was left.
func (s *spawner) killTree(c *child) bool {
	all, err := procfs.All()
	if err != nil {
		return false
	}
	in := map[int]bool{}
	isRoot := func(p procfs.Process) bool { return p.PID == c.pid && p.Start == c.start }
	for _, p := range procfs.Below(all, isRoot) {
		in[p.PID] = true
	}
	return s.killWhere(func(p procfs.Process) bool { return in[p.PID] || isRoot(p) || p.Session == c.pid })
}

// killWhere kills those of the container's processes that match, and reports
// whether there were none: not if it cannot see which there are.
func (s *spawner) killWhere(match func(procfs.Process) bool) bool {
	all, err := procfs.All()
	if err != nil {
		return false
	}
	self, none := os.Getpid(), true
	in := s.orphans(all)
	for _, p := range procfs.Below(all, func(p procfs.Process) bool { return p.PID == self || in[p.PID] }) {
		in[p.PID] = true
	}
	for _, p := range all {
		if in[p.PID] && p.PID != self && !p.Dead() && match(p) {
			none = false
			_ = procfs.Kill(p.PID, p.Start, unix.SIGKILL)
		}
	}
	return none
}

// orphans are processes of the container that may not be below this shim.
func (s *spawner) orphans(all []procfs.Process) map[int]bool {
	in := map[int]bool{}
	if s.marker == "" {
		return in
	}
	for _, pid := range s.group.Processes() {
		in[pid] = true
	}
	for _, p := range all {
		if procfs.HasEnv(p.PID, s.marker) {
			in[p.PID] = true
		}
	}
	return in
}

// exitOf says how a process ended, in the terms of a container.
func exitOf(c *child) Exit {
	e := Exit{Time: c.ended, Reason: ReasonCompleted}
	if c.status.Signaled() {
		e.Signal = int(c.status.Signal())
		e.Code = 128 + e.Signal
	} else {
		e.Code = c.status.ExitStatus()
	}
	if e.Code != 0 {
		e.Reason = ReasonError
	}
	return e
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
