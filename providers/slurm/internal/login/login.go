// Package login runs commands of Slurm where they are: on this machine, or by ssh on
// another one. What is run is a verb of the script login.sh with its arguments, so that one
// call is one command, and a fake need not know a shell.
package login

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

//go:embed login.sh
var script string

// Exit codes of the script.
const (
	// NotFound: there is no such job, or no directory of it.
	NotFound = 44
	// unreachable is ssh's for its own failures.
	unreachable = 255
)

// stopDelay is how long a command has to end that is no longer wanted.
const stopDelay = 5 * time.Second

// Command is a call of the script.
type Command struct {
	Verb string
	Args []string
	// Stdin is what the command reads; nil is nothing.
	Stdin io.Reader
	// Stdout is what it writes; nil drops that. Stderr too, but the end of it is in the
	// error.
	Stdout, Stderr io.Writer
	// Resize makes the command run in a terminal: Stdin and Stdout are connected with it.
	Resize <-chan api.TermSize
}

// Runner runs commands.
type Runner interface {
	// Run runs a command until it ends. An error is an Error if the command has ended with
	// an exit code. If ctx ends, the command is stopped.
	Run(ctx context.Context, c Command) error
}

// Error is the exit code of a command, and the end of its standard error.
type Error struct {
	Code int
	Text string
	// Unreachable reports that it was not run, or that its connection broke off.
	Unreachable bool
}

// Error implements error.
func (e *Error) Error() string { return cmp.Or(e.Text, fmt.Sprintf("exit code %d", e.Code)) }

// Shell is a Runner. Its zero value runs commands on this machine.
type Shell struct {
	// Environment is that of the commands, besides this process's.
	Environment map[string]string
	// SSH is the command that runs others on another machine, as in ["ssh", "host"]. Its
	// user's shell there has to be a POSIX shell.
	SSH []string
}

// argv returns the command that calls the script.
func (s *Shell) argv(c Command) []string {
	argv := []string{"/usr/bin/env"}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		argv = append(argv, name+"="+s.Environment[name])
	}
	argv = append(argv, "/bin/sh", "-c", script, "virtual-kubelet", c.Verb)
	argv = append(argv, c.Args...)
	if len(s.SSH) == 0 {
		return argv
	}
	var quoted []string
	for _, word := range argv {
		quoted = append(quoted, Quote(word))
	}
	ssh := slices.Clone(s.SSH)
	if c.Resize != nil {
		ssh = slices.Insert(ssh, 1, "-tt")
	}
	return append(ssh, strings.Join(quoted, " "))
}

// Run implements Runner.
func (s *Shell) Run(ctx context.Context, c Command) error {
	argv := s.argv(c)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // #nosec G204 -- the operator's command, and quoted words
	cmd.WaitDelay = stopDelay
	var stderr tail
	var err error
	if c.Resize != nil {
		err = runInTerminal(ctx, cmd, c)
	} else {
		err = run(cmd, c, &stderr)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return &Error{Code: ended.ExitCode(), Text: stderr.String(), Unreachable: ended.ExitCode() < 0 || len(s.SSH) > 0 && ended.ExitCode() == unreachable}
	}
	return &Error{Code: unreachable, Text: err.Error(), Unreachable: true}
}

// run runs a command in a process group of its own, which is ended as one.
func run(cmd *exec.Cmd, c Command, stderr *tail) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = c.Stdout, stderr
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(c.Stderr, stderr)
	}
	if c.Stdin == nil {
		return cmd.Run()
	}
	// A reader that has no end, such as a client that says nothing, does not hold the
	// command up.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the reader
		_, _ = io.Copy(stdin, c.Stdin) // a command may leave its input
		_ = stdin.Close()
	}()
	return cmd.Wait()
}

// runInTerminal runs a command in a terminal.
func runInTerminal(ctx context.Context, cmd *exec.Cmd, c Command) error {
	terminal, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var resizing sync.WaitGroup
	defer func() {
		cancel()
		resizing.Wait()
		_ = terminal.Close() // the command has ended
	}()
	if c.Stdin != nil {
		go func() { _, _ = io.Copy(terminal, c.Stdin) }() // ends with the reader, or the terminal
	}
	resizing.Go(func() {
		for {
			select {
			case size, ok := <-c.Resize:
				if !ok {
					return
				}
				_ = pty.Setsize(terminal, &pty.Winsize{Cols: size.Width, Rows: size.Height})
			case <-ctx.Done():
				return
			}
		}
	})
	out := c.Stdout
	if out == nil {
		out = io.Discard
	}
	_, _ = io.Copy(out, terminal) // a terminal ends with an error
	return cmd.Wait()
}

// Quote returns text as one word of a POSIX shell.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 2 << 10
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

// String returns the end in one line.
func (t *tail) String() string { return string(bytes.Join(bytes.Fields(t.text), []byte(" "))) }
