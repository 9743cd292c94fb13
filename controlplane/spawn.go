package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts child processes that the kernel kills when this process dies,
// however it dies (PR_SET_PDEATHSIG). The kernel in fact watches the thread
// that forked, hence the one locked thread that starts all of them.
type spawner struct {
	requests chan spawnRequest
	done     chan struct{}
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	runtime.LockOSThread() // never unlocked: the thread ends with this function
	defer close(s.done)
	for r := range s.requests {
		r.result <- r.cmd.Start()
	}
}

// start starts the command in a process group of its own: a Ctrl-C in the
// terminal must reach the supervisor alone, which stops the rest in order.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	result := make(chan error, 1)
	s.requests <- spawnRequest{cmd: cmd, result: result}
	return <-result
}

// close ends the thread, which kills every child that still runs.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}
