package daemon

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// endTimeout is how long Stop waits for a program.
const endTimeout = 2 * time.Minute

// Process is a program that knows nothing of who started it, and ends by a signal. The
// kernel kills it when the process that started it dies. Its methods may be called from
// several goroutines.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone
	err  error         // why, valid after done
}

// Launch starts a program, whose output goes to log.
func Launch(cmd *exec.Cmd, log io.Writer) (*Process, error) {
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the program
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// PID returns the program's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the program is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the program ended, once it is gone: nil if with exit code 0.
func (p *Process) Err() error { return p.err }

// Signal sends a signal to the program.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop sends a signal that ends the program, and returns when it is gone, with how it
// ended. It is an error if that was before, or does not happen: then it is killed.
func (p *Process) Stop(s os.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("%s had ended by itself: %v", p.cmd.Path, p.cmd.ProcessState)
	default:
	}
	_ = p.Signal(s) // fails only when it is gone
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.Signal(os.Kill)
		<-p.done
		return fmt.Errorf("%s did not end within %v of the signal %v, and was killed", p.cmd.Path, endTimeout, s)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s == os.Kill && status.Signal() == syscall.SIGKILL {
		return nil
	}
	return p.err
}
