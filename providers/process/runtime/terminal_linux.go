package runtime

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// runTerminal runs a command in a terminal.
func (r *Runtime) runTerminal(ctx context.Context, c *container, args []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	command, err := r.execCommand(c, args)
	if err != nil {
		return err
	}
	if getenv(command.Env, "TERM") == "" {
		command.Env = append(command.Env[:len(command.Env):len(command.Env)], "TERM=xterm")
	}
	ctx, cancel := r.until(ctx)
	defer cancel()
	master, slave, err := r.openTerminal(c)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = master.Close() }()
	// The size is known before the command asks for it, if the client has sent it.
	select {
	case size, ok := <-resize:
		if ok {
			_ = shim.SetSize(master, size.Height, size.Width)
		}
	case <-time.After(50 * time.Millisecond):
	}
	s, err := r.begin(ctx, c, command, true, [3]*os.File{slave, slave, slave})
	_ = slave.Close()
	if err != nil {
		return err
	}
	r.watchSize(ctx, resize, func(size remotecommand.TerminalSize) { _ = shim.SetSize(master, size.Height, size.Width) })
	if in != nil {
		r.spawn(func() { _, _ = io.Copy(master, in) })
	}
	var p pipes
	p.outputs = []*os.File{master}
	if out == nil {
		out = io.Discard
	}
	p.wg.Go(func() { p.copy(out, master) })
	err = s.wait(ctx)
	p.drain(ctx)
	return err
}

// openTerminal makes a terminal: the container's own where it has namespaces, so that
// its name means the same inside.
func (r *Runtime) openTerminal(c *container) (master, slave *os.File, err error) {
	if c.spec.Namespaces == nil {
		return pty.Open()
	}
	return shim.OpenTerminal(c.dir)
}

// watchSize hands on the sizes of a client's terminal.
func (r *Runtime) watchSize(ctx context.Context, sizes <-chan remotecommand.TerminalSize, set func(remotecommand.TerminalSize)) {
	if sizes == nil {
		return
	}
	r.spawn(func() {
		for {
			select {
			case size, ok := <-sizes:
				if !ok {
					return
				}
				set(size)
			case <-ctx.Done():
				return
			}
		}
	})
}
