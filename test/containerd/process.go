package containerd

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

// stopTimeout is longer than the supervisor gives pods and containerd.
const stopTimeout = 2 * time.Minute

// process is the supervisor. It stops when its standard input ends, hence also
// when this process dies.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when the process is gone
	err   error         // why, valid after done
}

// startProcess returns when everything is ready, with the line that says so.
func startProcess(ctx context.Context, binary string, args []string, log io.Writer) (*process, []byte, error) {
	recent := &tailBuffer{}
	ready := &firstLine{seen: make(chan []byte, 1)}
	cmd := exec.Command(binary, args...)
	cmd.Stdout = ready
	cmd.Stderr = io.MultiWriter(recent, log)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make the standard input of containerd-up: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start containerd-up: %w", err), stdin.Close())
	}
	p := &process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		// The end of its output is the end of the cleaning too: the cleaner
		// holds it as well.
		if err := cmd.Wait(); err != nil {
			p.err = fmt.Errorf("containerd-up ended: %w: %s", err, recent)
		}
	}()

	select {
	case line := <-ready.seen:
		return p, line, nil
	case <-p.done:
		if p.err == nil {
			p.err = fmt.Errorf("containerd-up ended before it was ready: %s", recent)
		}
		return nil, nil, p.err
	case <-ctx.Done():
		return nil, nil, errors.Join(fmt.Errorf("start containerd: %w: %s", context.Cause(ctx), recent), p.stop())
	}
}

// stop asks the process to end and returns when it is gone.
func (p *process) stop() error {
	_ = p.stdin.Close() // fails only when the process is gone
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill() // its cleaner does the rest
		<-p.done
		return fmt.Errorf("containerd-up did not stop within %v and was killed", stopTimeout)
	}
	return p.err
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
