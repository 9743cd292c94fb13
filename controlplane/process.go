package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// component is one program of the control plane: at most one process at a time.
type component struct {
	name  string
	args  []string
	log   string                      // the file that gets its output
	ready func(context.Context) error // returns when it can be used

	mu   sync.Mutex
	proc *process // nil while it is stopped on purpose
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
}

// start starts the process unless it runs. died is called if it ends without
// having been stopped.
func (c *component) start(s *spawner, executable, dir string, died func(error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		return nil
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	defer log.Close()

	cmd := exec.Command(executable, append([]string{c.name}, c.args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := s.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	c.proc = p
	go c.wait(p, died)
	return nil
}

// wait owns the process until it is gone.
func (c *component) wait(p *process, died func(error)) {
	err := p.cmd.Wait()
	close(p.done)

	c.mu.Lock()
	unexpected := c.proc == p
	if unexpected {
		c.proc = nil
	}
	c.mu.Unlock()
	if unexpected {
		state := "exit status 0"
		if err != nil {
			state = err.Error()
		}
		died(&diedError{name: c.name, state: state, log: c.log, tail: tail(c.log, 20)})
	}
}

// diedError says that a component ended without having been stopped.
type diedError struct {
	name, state, log string
	tail             []byte
}

func (e *diedError) Error() string {
	return fmt.Sprintf("%s ended by itself (%s); the last lines of %s:\n%s", e.name, e.state, e.log, e.tail)
}

// stop sends the signal, and SIGKILL when the process is not gone in time, and
// returns when it is. It returns false if none ran.
func (c *component) stop(signal syscall.Signal, timeout time.Duration) bool {
	c.mu.Lock()
	p := c.proc
	c.proc = nil
	c.mu.Unlock()
	if p == nil {
		return false
	}
	_ = p.cmd.Process.Signal(signal) // fails only when it is gone already
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return true
}

// tail returns the last lines of a file, as far as it can be read.
func tail(path string, lines int) []byte {
	f, err := os.Open(path)
	if err != nil {
		return []byte(err.Error())
	}
	defer f.Close()
	const most = 32 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(f, most))
	all := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
}
