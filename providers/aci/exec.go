package aci

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Azure starts a single process in a terminal, without arguments, and says neither how it ended
// nor which of its output are errors. Where a container has a shell it is that process: it is
// given a line that reads a script in further ones, since lines of terminals are limited, and
// the script puts marks around what the command prints. Each mark is a byte that commands
// hardly print, a letter, and a text that differs each time. What the terminal echoes has the
// marks' escapes, and not the marks.
const (
	markReady  = 'R' // the script may be sent
	markBegin  = 'B' // the command begins
	markError  = 'S' // errors follow, until markOutput
	markOutput = 'T'
	markExit   = 'E' // the exit code follows, and a semicolon
	markByte   = '\001'
)

// shellPath is the shell of containers.
const shellPath = "/bin/sh"

// errNoShell is the error of a shell that has ended before it began with the command.
var errNoShell = errors.New("the container has no " + shellPath + ", and Azure runs commands without arguments only")

// Exec implements podgroup.Execer. A container without a shell can run a single word.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, name string, command []string, attach api.AttachIO) error {
	size := firstSize(ctx, attach)
	token := rand.Text()
	s, err := b.session(ctx, u, name, shellPath, size)
	if err != nil {
		return err
	}
	s.attach, s.token, s.script = attach, token, lines(script(command, token, attach.TTY(), attach.Stdin() != nil))
	err = s.run(ctx, loader(token))
	if !errors.Is(err, errNoShell) || len(command) > 1 || strings.ContainsAny(command[0], " \t\n") {
		return err
	}
	if s, err = b.session(ctx, u, name, command[0], size); err != nil {
		return err
	}
	s.attach = attach
	return s.run(ctx, "")
}

// sizeTimeout is how long the first size of a terminal is waited for: Azure takes no other.
const sizeTimeout = 200 * time.Millisecond

func firstSize(ctx context.Context, attach api.AttachIO) *aci.ContainerExecRequestTerminalSize {
	size := &aci.ContainerExecRequestTerminalSize{Cols: new(int32(120)), Rows: new(int32(60))}
	if !attach.TTY() {
		return size
	}
	timeout := time.NewTimer(sizeTimeout)
	defer timeout.Stop()
	select {
	case s, ok := <-attach.Resize():
		if ok && s.Width > 0 && s.Height > 0 {
			size.Cols, size.Rows = new(int32(s.Width)), new(int32(s.Height))
		}
	case <-timeout.C:
	case <-ctx.Done():
	}
	return size
}

// quote returns a word as a shell reads it.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// mark returns a mark as printf prints it.
func mark(letter rune, token string) string { return fmt.Sprintf(`\001%c%s`, letter, token) }

// loader returns the line that reads the script, up to an empty line, and runs it. It begins
// with a blank, and so stays out of histories.
func loader(token string) string {
	return " stty -echo 2>/dev/null;printf '" + mark(markReady, token) + `';c=;while IFS= read -r l&&[ "$l" ];do c=$c$l;done;eval "$(printf %b "$c")"` + "\n"
}

// lines returns a script in the lines that the loader reads, in which a backslash is the
// beginning of an octal number.
func lines(script string) []string {
	var all []string
	var line strings.Builder
	for _, c := range []byte(script) {
		if c < ' ' || c > '~' || c == '\\' {
			fmt.Fprintf(&line, `\0%03o`, c)
		} else {
			line.WriteByte(c)
		}
		if line.Len() >= maxLine {
			all = append(all, line.String()+"\n")
			line.Reset()
		}
	}
	if line.Len() > 0 {
		all = append(all, line.String()+"\n")
	}
	return append(all, "\n")
}

// maxLine is how much is sent in a line. A terminal takes 4095 bytes.
const maxLine = 1000

// script returns the script: without a terminal of the client's it does not echo and translates
// nothing, and errors go through a loop that marks them. It waits until the client, which has the
// exit code then, closes the connection: what is printed last can be lost when a terminal closes.
func script(command []string, token string, tty, stdin bool) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = quote(word)
	}
	line := strings.Join(words, " ")
	of := func(letter rune) string { return mark(letter, token) }
	if tty {
		// A shell would give up the rest when Ctrl-C ends the command.
		return fmt.Sprintf("trap : INT; stty echo 2>/dev/null; printf '%s'; %s\nprintf '%s%%d;' $?; sleep 1; exit", of(markBegin), line, of(markExit))
	}
	if !stdin {
		line += " </dev/null"
	}
	return fmt.Sprintf("stty -echo -onlcr -icrnl -isig -ixon 2>/dev/null; printf '%s'; "+
		`{ { { %s; } 2>&1 1>&3 3>&-; printf '%s%%d;\n' $?; } | while IFS= read -r l || [ -n "$l" ]; do printf '%s%%s\n%s' "$l"; done; } 3>&1; sleep 1; exit`,
		of(markBegin), line, of(markExit), of(markError), of(markOutput))
}

// session is a process of Azure.
type session struct {
	conn   *websocket.Conn
	attach api.AttachIO
	token  string   // of marks; empty if there are none
	script []string // for the shell, once it is ready

	pending []byte // output that may be the beginning of a mark
	begun   bool
	errors  bool // what follows are errors
	code    int  // of the command, once it has ended
	ended   bool
}

func (b *backend) session(ctx context.Context, u *podgroup.Unit, name, process string, size *aci.ContainerExecRequestTerminalSize) (*session, error) {
	got, err := b.containers.ExecuteCommand(ctx, b.cfg.ResourceGroup, u.ID, name, aci.ContainerExecRequest{Command: &process, TerminalSize: size}, nil)
	if err != nil {
		return nil, classify(podgroup.ActionExec, err)
	}
	conn, err := b.dial(ctx, valueOf(got.WebSocketURI), nil)
	if err != nil {
		return nil, err
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte(valueOf(got.Password))); err != nil {
		_ = conn.Close()
		return nil, errdefs.AsUnavailable(fmt.Errorf("the WebSocket of Azure failed: %w", err))
	}
	return &session{conn: conn}, nil
}

// run sends the first line, if there is one, and copies input and output until the process has
// ended.
func (s *session) run(ctx context.Context, first string) error {
	defer s.conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	if first == "" {
		s.begin()
	} else if err := s.send(first); err != nil {
		return ended(ctx, err)
	}
	for {
		_, message, err := s.conn.ReadMessage()
		if err != nil {
			if failed := ended(ctx, err); failed != nil && !s.begun {
				return failed
			}
			return s.over(ctx, err)
		}
		if err := s.output(message); err != nil {
			return err // the client is gone
		}
		if s.ended {
			return s.over(ctx, nil)
		}
	}
}

// send sends input. It is called by one goroutine at a time: first that which runs, then that
// of the client's input.
func (s *session) send(data string) error {
	return s.conn.WriteMessage(websocket.BinaryMessage, []byte(data))
}

// over returns what the command has returned.
func (s *session) over(ctx context.Context, err error) error {
	switch {
	case s.ended:
		return podgroup.ExitError(s.code)
	case ctx.Err() != nil:
		return ctx.Err()
	case !s.begun:
		return errNoShell
	case s.token == "":
		return ended(ctx, err)
	}
	return errdefs.AsUnavailable(errors.New("the WebSocket of Azure was closed before the command had ended"))
}

// begin begins to send input.
func (s *session) begin() {
	s.begun = true
	in := s.attach.Stdin()
	if in == nil {
		return
	}
	go func() { // ends with the client's stream
		buf := make([]byte, maxLine)
		for {
			n, err := in.Read(buf)
			data := buf[:n]
			if !s.attach.TTY() && s.token != "" {
				data = escape(data)
				if n > 0 && buf[n-1] != '\n' { // has the terminal pass on an unfinished line
					data = append(data, endOfInput)
				}
				if errors.Is(err, io.EOF) { // of an empty line it is the end
					data = append(data, endOfInput)
				}
			}
			if len(data) > 0 && s.send(string(data)) != nil || err != nil {
				return
			}
		}
	}()
}

// The characters with a meaning for a terminal that reads lines, without signals and flow
// control: end of input, erase, kill, reprint, erase a word, and the next literally.
const (
	endOfInput = 0x04
	literal    = 0x16
)

var special = []byte{endOfInput, 0x0f, 0x12, 0x15, literal, 0x17, 0x7f}

// escape returns input of which the terminal takes nothing for itself.
func escape(data []byte) []byte {
	var escaped []byte
	for _, c := range data {
		if bytes.IndexByte(special, c) >= 0 {
			escaped = append(escaped, literal)
		}
		escaped = append(escaped, c)
	}
	return escaped
}

// output writes what the process has printed to where it belongs.
func (s *session) output(data []byte) error {
	if s.token == "" {
		return write(s.attach.Stdout(), data)
	}
	s.pending = append(s.pending, data...)
	for len(s.pending) > 0 && !s.ended {
		at := bytes.IndexByte(s.pending, markByte)
		if at != 0 {
			text := s.pending
			if at > 0 {
				text = s.pending[:at]
			}
			if err := s.print(text); err != nil {
				return err
			}
			s.pending = s.pending[len(text):]
			continue
		}
		taken, whole := s.mark()
		if !whole {
			return nil // the rest is still to come
		}
		if taken == 0 { // it is none
			taken = 1
			if err := s.print(s.pending[:1]); err != nil {
				return err
			}
		}
		s.pending = s.pending[taken:]
	}
	return nil
}

// mark reads a mark at the beginning of the pending output, and returns its length, zero if it
// is none; whole is false while that is not known.
func (s *session) mark() (taken int, whole bool) {
	length := 2 + len(s.token)
	head := s.pending[min(2, len(s.pending)):min(length, len(s.pending))]
	if !strings.HasPrefix(s.token, string(head)) {
		return 0, true
	}
	if len(s.pending) < length {
		return 0, false
	}
	switch s.pending[1] {
	case markReady:
		for _, line := range s.script {
			if s.send(line) != nil {
				break // the next read says why
			}
		}
		s.script = nil
	case markBegin:
		if !s.begun {
			s.begin()
		}
	case markError:
		s.errors = true
	case markOutput:
		s.errors = false
	case markExit:
		text := s.pending[length:min(length+4, len(s.pending))]
		end := bytes.IndexByte(text, ';')
		if end < 0 { // a code has three digits at most: what is longer is the container's
			return 0, len(text) == 4
		}
		code, err := strconv.Atoi(string(text[:end]))
		if err != nil {
			return 0, true
		}
		s.code, s.ended = code, true
		return length + end + 1, true
	default:
		return 0, true
	}
	return length, true
}

// print writes output of the command; before its beginning there is the terminal's echo.
func (s *session) print(data []byte) error {
	switch {
	case !s.begun:
		return nil
	case s.errors:
		return write(s.attach.Stderr(), data)
	}
	return write(s.attach.Stdout(), data)
}

func write(w io.Writer, data []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(data)
	return err
}
