package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// maxAnswer is the size in bytes of the longest answer of a command, and maxComplaint that of
	// what it writes to its standard error.
	maxAnswer, maxComplaint = 64 << 20, 4 << 10
	// killDelay is how long a command may take to end after SIGTERM.
	killDelay = 5 * time.Second
	// exitUnsupported is the exit code of a verb that a command does not have, and exitRefused
	// that of a machine that would be refused however often it is asked for.
	exitUnsupported, exitRefused = 3, 4
	// typeVariable is the variable with the type of the machine that is to be made.
	typeVariable = "MACHINE_TYPE"
)

// execDriver is a command that makes machines: README.md has its contract.
type execDriver struct{ command []string }

// NewExec returns the driver that runs a command, with the verb appended: create, delete, list
// or console.
func NewExec(command []string) (Driver, error) {
	if len(command) == 0 {
		return nil, errdefs.InvalidInput("the command of the exec driver is missing")
	}
	return &execDriver{slices.Clone(command)}, nil
}

// Create implements Driver.
func (d *execDriver) Create(ctx context.Context, spec Spec) (m Machine, err error) {
	err = d.runWith(ctx, []string{typeVariable + "=" + spec.Type}, spec, &m, "create")
	if err == nil && m.Name == "" {
		m.Name = spec.Name
	}
	if err == nil {
		err = m.check()
	}
	return m, err
}

// Delete implements Driver.
func (d *execDriver) Delete(ctx context.Context, m Machine) error {
	return d.run(ctx, m, nil, "delete")
}

// List implements Driver.
func (d *execDriver) List(ctx context.Context, tags map[string]string) ([]Machine, error) {
	var list struct {
		// Machines is a pointer, so that an answer without it is not an empty list.
		Machines *[]Machine `json:"machines"`
	}
	if err := d.run(ctx, map[string]any{"tags": tags}, &list, "list"); err != nil {
		return nil, err
	}
	if list.Machines == nil {
		return nil, errdefs.AsUnavailable(errors.New("the command's answer to list has no field machines"))
	}
	for _, m := range *list.Machines {
		if err := m.check(); err != nil {
			return nil, errdefs.AsUnavailable(err)
		}
	}
	return *list.Machines, nil
}

// Console implements Driver.
func (d *execDriver) Console(ctx context.Context, m Machine, limit int) (string, error) {
	var console struct {
		Text string `json:"text"`
	}
	err := d.run(ctx, m, &console, "console", strconv.Itoa(limit))
	if len(console.Text) > limit {
		console.Text = console.Text[len(console.Text)-limit:]
	}
	return console.Text, err
}

// check returns an error if a command has answered with something that is no machine.
func (m *Machine) check() error {
	if m.Name == "" {
		return errors.New("the command's answer has a machine without a name")
	}
	if ip, err := netip.ParseAddr(m.Address); m.Address != "" && err != nil {
		return fmt.Errorf("the command's answer has machine %s with an address that is no IP address: %w", m.Name, err)
	} else if ip.Zone() != "" { // no status of a pod has one
		return fmt.Errorf("the command's answer has machine %s with an address that has a zone, %q", m.Name, clip(m.Address, 100))
	}
	if !slices.Contains([]State{"", Starting, Running, Ending, Ended}, m.State) {
		return fmt.Errorf("the command's answer has machine %s in state %q: use starting, running, ending or ended", m.Name, m.State)
	}
	return nil
}

// run runs a verb with JSON on its standard input, and decodes its standard output.
func (d *execDriver) run(ctx context.Context, in, out any, verb ...string) error {
	return d.runWith(ctx, nil, in, out, verb...)
}

// runWith is run with variables beside those of this process.
func (d *execDriver) runWith(ctx context.Context, env []string, in, out any, verb ...string) error {
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	argv := slices.Concat(d.command, verb)
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env = append(command.Environ(), env...)
	// It ends with what it has started, unless that has a session of its own. What it leaves behind
	// with its output open is not waited for.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	group := func(s syscall.Signal) error { return syscall.Kill(-command.Process.Pid, s) }
	command.Cancel = func() error { return group(syscall.SIGTERM) }
	command.WaitDelay = killDelay
	stdout, stderr := &bounded{most: maxAnswer}, &bounded{most: maxComplaint}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), stdout, stderr
	err = command.Run()
	switch {
	case ctx.Err() != nil:
		if command.Process != nil {
			_ = group(syscall.SIGKILL) // fails if nothing is left
		}
		return errdefs.AsUnavailable(fmt.Errorf("%s did not end in time: %w", verb[0], context.Cause(ctx)))
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left something running
	case err != nil:
		failed := fmt.Errorf("%s failed: %w: %s", verb[0], err, strings.TrimSpace(stderr.String()))
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitUnsupported {
			return fmt.Errorf("%w: %w", failed, errors.ErrUnsupported)
		} else if ok && exit.ExitCode() == exitRefused && verb[0] == "create" {
			return errdefs.AsPermanent(failed)
		}
		return errdefs.AsUnavailable(failed)
	}
	if out == nil {
		return nil
	}
	if stdout.over {
		return errdefs.AsUnavailable(fmt.Errorf("the answer to %s has more than %d bytes", verb[0], maxAnswer))
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the answer to %s cannot be read: %w", verb[0], err))
	}
	return nil
}

// bounded keeps the beginning of what is written.
type bounded struct {
	bytes.Buffer
	most int
	over bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.most-b.Len())
	b.over = b.over || keep < len(p)
	_, err := b.Buffer.Write(p[:keep])
	return len(p), err
}
