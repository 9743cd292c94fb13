package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// StartContainer implements the CRI. A container is started once; that it was
// begun is written down before anything else.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	c.op.Lock()
	defer c.op.Unlock()
	box, err := r.mayStart(c)
	if err != nil {
		return err
	}
	if err := r.pinShared(box); err != nil {
		return fmt.Errorf("start container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	if err := r.launch(c); err != nil {
		return fmt.Errorf("start container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	select {
	case <-c.up:
		return nil
	case <-c.down:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return status.Error(codes.Unavailable, "the runtime is closed; the start goes on")
	}
	// A command that has ended already was started nevertheless.
	if exit := c.ended(); exit.Reason == shim.ReasonStartError || exit.Reason == shim.ReasonUnknown {
		return fmt.Errorf("start container %s: %s", c.config.GetMetadata().GetName(), exit.Message)
	}
	return nil
}

func (c *container) ended() shim.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit == nil {
		return shim.Exit{}
	}
	return *c.exit
}

func (r *Runtime) mayStart(c *container) (*sandbox, error) {
	box, err := r.sandbox(c.sandbox)
	if err != nil {
		return nil, err
	}
	if box.isStopped() {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s was stopped", c.sandbox)
	}
	if _, err := r.container(c.id); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began || c.exit != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s was started before: a container is started once", c.id)
	}
	return box, nil
}

// launch starts the shim.
func (r *Runtime) launch(c *container) error {
	lock, err := shim.Lock(c.dir)
	if err != nil {
		return err
	}
	// From here on the lock says whether there is or may be a shim.
	defer func() { _ = lock.Close() }()
	if err := shim.WriteRecord(c.dir, shim.IntentFile, shim.Intent{BootID: r.bootID, Time: time.Now()}); err != nil {
		return err
	}
	c.mu.Lock()
	c.began = true
	c.mu.Unlock()
	report, err := r.startShim(c, lock)
	if err != nil {
		r.end(c, shim.Exit{Code: shim.StartErrorCode, Reason: shim.ReasonStartError, Message: "its shim: " + err.Error(), Time: time.Now()})
		return err
	}
	if !r.spawn(func() { r.supervise(c, report) }) {
		_ = report.pipe.Close()
	}
	return nil
}

// report is a shim that was started, and what it says of its start.
type report struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func (r *Runtime) startShim(c *container, lock *os.File) (*report, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = pw.Close() }()
	stderr, err := os.OpenFile(c.path(shim.LogFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		_ = pr.Close()
		return nil, err
	}
	defer func() { _ = stderr.Close() }()
	cmd := exec.Command(r.shimPath)
	cmd.Args, cmd.Dir = shim.Args(c.dir), "/"
	// A shim has little to do; it should cost little.
	cmd.Env = []string{"GOMAXPROCS=2", "GOGC=50", "GOTRACEBACK=all"}
	cmd.Stderr = stderr
	cmd.ExtraFiles = []*os.File{lock, pw}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = pr.Close()
		return nil, err
	}
	c.mu.Lock()
	c.shimPID = cmd.Process.Pid
	c.mu.Unlock()
	return &report{cmd: cmd, pipe: pr}, nil
}

// wait waits for the shim to say how the start went.
func (r *report) wait(ctx context.Context) error {
	defer func() { _ = r.pipe.Close() }()
	defer context.AfterFunc(ctx, func() { _ = r.pipe.Close() })()
	line, err := bufio.NewReader(r.pipe).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return errors.New("the shim ended before it had answered")
	case err != nil:
		return err
	case strings.TrimSpace(line) != "":
		return errors.New(strings.TrimSpace(line))
	}
	return nil
}
