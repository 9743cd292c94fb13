package mock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// RunInContainer pretends to run a command: see README.md for the few that it
// knows. It prints the command line of any other. It ends, as if killed, when
// the container stops.
func (p *Provider) RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error {
	s, err := p.session(namespace, podName, containerName)
	if err != nil {
		return err
	}
	if len(cmd) == 0 {
		return errNoCommand
	}
	return s.run(ctx, func(ctx context.Context) error {
		sh := newShell(ctx, attach)
		code, _ := sh.run(cmd)
		return exitError(code)
	})
}

// shell knows a handful of commands.
type shell struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	tty            bool
	newline        string
}

func newShell(ctx context.Context, attach api.AttachIO) *shell {
	s := &shell{ctx: ctx, stdin: strings.NewReader(""), stdout: io.Discard, tty: attach.TTY(), newline: "\n"}
	if in := attach.Stdin(); in != nil {
		s.stdin = in
	}
	if out := attach.Stdout(); out != nil {
		s.stdout = out
	}
	s.stderr = s.stdout // with a terminal there is only one output
	if e := attach.Stderr(); e != nil && !s.tty {
		s.stderr = e
	} else if !s.tty {
		s.stderr = io.Discard
	}
	if s.tty {
		s.newline = "\r\n"
	}
	return s
}

// run runs one command. It returns its exit code, and whether it ends the shell
// that it is run by.
func (s *shell) run(args []string) (code int, exits bool) {
	switch path.Base(args[0]) {
	case "echo":
		return s.print(s.stdout, strings.Join(args[1:], " ")), false
	case "exit":
		return exitArgument(args), true
	case "true":
		return 0, false
	case "false":
		return 1, false
	case "cat":
		if len(args) == 1 {
			return failed(io.Copy(s.stdout, s.stdin)), false
		}
	case "sleep":
		if seconds, err := strconv.ParseFloat(strings.Join(args[1:], ""), 64); err == nil {
			return s.sleep(time.Duration(seconds * float64(time.Second))), false
		}
	case "sh", "ash", "bash":
		if len(args) == 1 {
			return s.interactive(), false
		}
		if len(args) >= 3 && args[1] == "-c" {
			code, _ := s.script(args[2])
			return code, false
		}
	}
	return s.print(s.stdout, strings.Join(args, " ")), false
}

// script runs commands that newlines and semicolons separate.
func (s *shell) script(text string) (code int, exits bool) {
	for _, statement := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		args := strings.Fields(statement)
		sub := *s
		if n := len(args); n > 0 && (args[n-1] == ">&2" || args[n-1] == "1>&2") {
			args, sub.stdout = args[:n-1], s.stderr
		}
		for i := range args {
			args[i] = strings.Trim(args[i], `"'`)
		}
		if len(args) == 0 || args[0] == "" {
			continue
		}
		if code, exits = sub.run(args); exits || s.ctx.Err() != nil {
			return code, exits
		}
	}
	return code, false
}

// interactive runs what comes from stdin, line by line.
func (s *shell) interactive() (code int) {
	in := bufio.NewReader(s.stdin)
	// Commands read on where the shell has stopped.
	sub := *s
	sub.stdin = in
	for {
		if s.tty {
			fmt.Fprint(s.stdout, "$ ")
		}
		line, err := in.ReadString('\n')
		var exits bool
		if text := strings.TrimSpace(line); text != "" {
			if code, exits = sub.script(text); exits {
				return code
			}
		}
		if err != nil {
			return code
		}
	}
}

func (s *shell) print(w io.Writer, text string) int {
	return failed(io.WriteString(w, text+s.newline))
}

func (s *shell) sleep(d time.Duration) int {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0
	case <-s.ctx.Done():
		return exitCodeKilled
	}
}

func exitArgument(args []string) int {
	if len(args) < 2 {
		return 0
	}
	code, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	return code & 0xff
}

// failed is the exit code of a command that did nothing but copy.
func failed[N any](_ N, err error) int {
	if err != nil {
		return 1
	}
	return 0
}
