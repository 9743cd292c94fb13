package controlplane

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

// stopTimeout is longer than the supervisor gives its four components.
const stopTimeout = 30 * time.Second

// supervisor is the process "controlplane up". It stops when its standard
// input ends, hence also when this process dies.
type supervisor struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when the process is gone
	err   error         // why, valid after done
}

// startSupervisor returns when everything is ready.
func startSupervisor(ctx context.Context, binary string, args []string, log io.Writer) (*supervisor, error) {
	recent := &tailBuffer{}
	ready := newFirstLine()
	cmd := exec.Command(binary, args...)
	cmd.Stdout = ready
	cmd.Stderr = io.MultiWriter(recent, log)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make the control plane's standard input: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), stdin.Close())
	}
	s := &supervisor{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if err := cmd.Wait(); err != nil {
			s.err = fmt.Errorf("the control plane ended: %w: %s", err, recent)
		}
	}()

	select {
	case <-ready.seen:
		return s, nil
	case <-s.done:
		if s.err == nil {
			s.err = fmt.Errorf("the control plane ended before it was ready: %s", recent)
		}
		return nil, s.err
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("start the control plane: %w: %s", context.Cause(ctx), recent), s.stop())
	}
}

// stop asks the process to end and returns when it is gone.
func (s *supervisor) stop() error {
	_ = s.stdin.Close() // fails only when the process is gone
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
		_ = s.cmd.Process.Kill() // takes the components with it
		<-s.done
		return fmt.Errorf("the control plane did not stop within %v and was killed", stopTimeout)
	}
	return s.err
}

// firstLine is a writer that tells when the first line is complete.
type firstLine struct {
	once sync.Once
	seen chan struct{}
}

func newFirstLine() *firstLine { return &firstLine{seen: make(chan struct{})} }

func (f *firstLine) Write(p []byte) (int, error) {
	if bytes.IndexByte(p, '\n') >= 0 {
		f.once.Do(func() { close(f.seen) })
	}
	return len(p), nil
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu   sync.Mutex
	data []byte
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	const most = 16 << 10
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if len(b.data) > most {
		b.data = append([]byte(nil), b.data[len(b.data)-most:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(string(b.data))
}
