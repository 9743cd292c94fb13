package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// lateOutput is how long output is waited for after a command has ended, when a
// process that it has left behind holds on to its streams.
const lateOutput = 2 * time.Second

// maxOutput is how much of ExecSync's output is kept, as the CRI asks for.
const maxOutput = 16 << 20

// execCommand is what exec runs: as the container's own command, but for its
// arguments.
func (r *Runtime) execCommand(c *container, args []string) (*shim.Command, error) {
	if len(args) == 0 {
		return nil, invalid("no command was given")
	}
	if err := c.mustRun(); err != nil {
		return nil, err
	}
	command := c.spec.Command
	command.Args = args
	mounts := c.mountsNow()
	path, err := r.lookup(command, mounts)
	if err != nil {
		return nil, err
	}
	command.Path = path
	return &command, nil
}

// mountsNow are the volumes that the container was created with.
func (c *container) mountsNow() []shim.Mount {
	if c.spec.Namespaces == nil {
		return nil
	}
	return c.spec.Namespaces.Mounts
}

// session is a command of exec that runs.
type session struct{ conn *shim.Conn }

// begin starts a command with its streams. The files stay the caller's.
func (r *Runtime) begin(ctx context.Context, c *container, command *shim.Command, tty bool, files [3]*os.File) (*session, error) {
	conn, err := shim.Dial(c.dir)
	if err != nil {
		return nil, fmt.Errorf("the shim of container %s: %w", c.id, err)
	}
	// A start that is under way is waited for, so that what it starts is killed.
	stop := context.AfterFunc(ctx, func() { conn.GiveUpAfter(killTime) })
	defer stop()
	var response shim.Response
	err = conn.Send(shim.Request{Op: shim.OpExec, Command: command, TTY: tty}, files[:]...)
	if err == nil {
		err = conn.Receive(&response)
	}
	if err == nil && response.Error != "" {
		err = errors.New(response.Error)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("run %q in container %s: %w", command.Args, c.id, err)
	}
	return &session{conn: conn}, nil
}

// wait waits for the command's end. When ctx ends first, the command is killed
// with all of its session, and that is waited for.
func (s *session) wait(ctx context.Context) error {
	defer func() { _ = s.conn.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = s.conn.Send(shim.Request{Op: shim.OpKill})
		s.conn.GiveUpAfter(killTime)
	})
	var response shim.Response
	err := s.conn.Receive(&response)
	if !stop() {
		return ctx.Err()
	}
	if err != nil || response.Exit == nil {
		return errors.New("the container ended before the command did")
	}
	if code := response.Exit.Code; code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

// ExecSync implements the CRI. A command that exits with another code than zero
// is an error that is a k8s.io/utils/exec.ExitError, one that takes longer than
// timeout is context.DeadlineExceeded and is killed.
func (r *Runtime) ExecSync(ctx context.Context, id string, args []string, timeout time.Duration) ([]byte, []byte, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr capped
	err = r.run(ctx, c, args, nil, &stdout, &stderr)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%q timed out after %s: %w", args, time.Since(began).Round(time.Millisecond), context.DeadlineExceeded)
	}
	return stdout.Bytes(), stderr.Bytes(), err
}

// capped keeps the beginning of what is written.
type capped struct{ bytes.Buffer }

func (c *capped) Write(data []byte) (int, error) {
	c.Buffer.Write(data[:min(len(data), maxOutput-c.Len())])
	return len(data), nil
}

// run runs a command without a terminal.
func (r *Runtime) run(ctx context.Context, c *container, args []string, in io.Reader, out, errOut io.Writer) error {
	command, err := r.execCommand(c, args)
	if err != nil {
		return err
	}
	ctx, cancel := r.until(ctx)
	defer cancel()
	var p pipes
	defer p.close()
	stdin, err := p.input(in)
	if err != nil {
		return err
	}
	stdout, err := p.output(out)
	if err != nil {
		return err
	}
	stderr, err := p.output(errOut)
	if err != nil {
		return err
	}
	s, err := r.begin(ctx, c, command, false, [3]*os.File{stdin, stdout, stderr})
	p.closeRemote()
	if err != nil {
		return err
	}
	p.start(r)
	err = s.wait(ctx)
	p.drain(ctx)
	return err
}

// until is a context that ends with the runtime too, and with the client of a
// stream.
func (r *Runtime) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(r.ctx, cancel)}
	if client, ok := ctx.Value(keptKey{}).(*kept); ok {
		stops = append(stops, context.AfterFunc(client.ctx, cancel))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
