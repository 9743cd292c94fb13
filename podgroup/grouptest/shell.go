package grouptest

import (
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// Shell runs the commands of a fake that runs no containers: echo, cat, exit, true, size (of
// the terminal), and sh -c with them; any other fails with 127.
type Shell struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Sizes are those of the terminal, as texts.
	Sizes <-chan string
	// TTY ends lines as a terminal does, and has one output.
	TTY bool
}

// Run runs a command, and returns its exit code.
func (s *Shell) Run(args []string) (code int) {
	text := strings.Join(args[1:], " ")
	switch path.Base(args[0]) {
	case "sh":
		if len(args) == 3 && args[1] == "-c" {
			return s.script(args[2])
		}
	case "echo":
		return s.print(s.Stdout, text)
	case "exit":
		code, _ := strconv.Atoi(text)
		return code
	case "true":
		return 0
	case "cat":
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return 1
		}
		return 0
	case "size":
		return s.print(s.Stdout, <-s.Sizes)
	}
	s.print(s.Stderr, args[0]+": not found")
	return 127
}

func (s *Shell) script(text string) (code int) {
	for statement := range strings.SplitSeq(text, ";") {
		args := strings.Fields(statement)
		n := len(args)
		switch {
		case n == 0:
		case args[n-1] == ">&2":
			code = s.print(s.Stderr, strings.Join(args[1:n-1], " "))
		default:
			if code = s.Run(args); args[0] == "exit" {
				return code
			}
		}
	}
	return code
}

func (s *Shell) print(to io.Writer, text string) int {
	end := "\n"
	if s.TTY {
		to, end = s.Stdout, "\r\n"
	}
	if _, err := fmt.Fprint(to, text+end); err != nil {
		return 1
	}
	return 0
}
