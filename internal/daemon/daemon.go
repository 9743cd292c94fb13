// Package daemon runs programs for tests and benchmarks. Daemon is one that says with the
// first line of its output that it is ready, and that stops when its standard input ends,
// hence also when the process that started it dies. Process is any other.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Daemon is a program that was ready. Its methods may be called from several
// goroutines.
type Daemon struct {
	name        string
	stopTimeout time.Duration
	cmd         *exec.Cmd
	stdin       io.Closer
	done        chan struct{} // closed when the process is gone
	err         error         // why, valid after done
}

// Start returns when the program is ready, with the line that says so. The
// context limits the start only. What the program writes to its standard error
// goes to log, and the end of it into errors, which call the program name. Stop
// kills a program that takes longer than stopTimeout.
func Start(ctx context.Context, name string, cmd *exec.Cmd, log io.Writer, stopTimeout time.Duration) (*Daemon, []byte, error) {
	recent := &tail{}
	ready := &firstLine{seen: make(chan []byte, 1)}
	cmd.Stdout = ready
	cmd.Stderr = io.MultiWriter(recent, log)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make the standard input of %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w", name, err), stdin.Close())
	}
	d := &Daemon{name: name, stopTimeout: stopTimeout, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() { // ends with the program, for which Stop waits
		defer close(d.done)
		// Wait returns at the end of the output: a process that the program
		// started to clean up after it may hold that a little longer.
		if err := cmd.Wait(); err != nil {
			d.err = fmt.Errorf("%s ended: %w: %s", name, err, recent)
		}
	}()

	select {
	case line := <-ready.seen:
		return d, line, nil
	case <-d.done:
		if d.err == nil {
			d.err = fmt.Errorf("%s ended before it was ready: %s", name, recent)
		}
		return nil, nil, d.err
	case <-ctx.Done():
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w: %s", name, context.Cause(ctx), recent), d.Stop())
	}
}

// Stop asks the program to end and returns when it is gone. It returns an error
// when the program had failed before, and the same each time.
func (d *Daemon) Stop() error {
	_ = d.stdin.Close() // fails only when the process is gone
	timer := time.NewTimer(d.stopTimeout)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
		_ = d.cmd.Process.Kill()
		<-d.done
		return fmt.Errorf("%s did not stop within %v and was killed", d.name, d.stopTimeout)
	}
	return d.err
}

// firstLine is a writer that hands out the first line when it is complete.
type firstLine struct {
	line     []byte
	complete bool
	seen     chan []byte // of one
}

func (f *firstLine) Write(p []byte) (int, error) {
	if f.complete {
		return len(p), nil
	}
	f.line = append(f.line, p...)
	if line, _, ok := bytes.Cut(f.line, []byte("\n")); ok {
		f.complete = true
		f.seen <- line
	}
	return len(p), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 16 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if len(t.data) > most {
		t.data = append([]byte(nil), t.data[len(t.data)-most:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.data))
}
