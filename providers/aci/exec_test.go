package aci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
)

// terminals is what is behind the WebSockets of Azure: a process in a terminal for a command,
// and output for an attachment.
type terminals struct {
	server *acitest.Server
	// shell replaces /bin/sh; empty if there is none.
	shell []string
	// loseEnd has terminals lose what is printed just before they close.
	loseEnd bool
	wg      sync.WaitGroup
}

func (s *terminals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.wg.Add(1)
	defer s.wg.Done()
	password := r.Header.Get("Authorization")
	upgrader := websocket.Upgrader{}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the client has its answer
	}
	defer conn.Close()
	if password == "" {
		_, first, err := conn.ReadMessage()
		if err != nil {
			return
		}
		password = string(first)
	}
	session, ok := s.server.Take(password)
	if !ok {
		_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.ClosePolicyViolation, "wrong password"))
		return
	}
	defer func() {
		_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	}()
	if session.Command == "" {
		_ = conn.WriteMessage(websocket.BinaryMessage, []byte("line one\nline two\n"))
		return
	}
	args := []string{session.Command} // no arguments: that is Azure's way
	if session.Command == shellPath {
		args = s.shell
	}
	if len(args) == 0 {
		return
	}
	s.process(conn, args)
}

// process runs a process in a terminal until it ends, or the client is gone.
func (s *terminals) process(conn *websocket.Conn, args []string) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "PS1=prompt> ", "PS2=more> "}
	terminal, err := pty.Start(cmd)
	if err != nil {
		return // there is no such command
	}
	var reading sync.WaitGroup
	reading.Go(func() { // ends with the connection
		for {
			_, message, err := conn.ReadMessage()
			if err != nil {
				_ = cmd.Process.Kill()
				return
			}
			_, _ = terminal.Write(message)
		}
	})
	buf := make([]byte, 700) // marks may be cut
	for {
		n, err := terminal.Read(buf)
		if s.loseEnd && n > 0 {
			if next, _ := unix.Poll([]unix.PollFd{{Fd: int32(terminal.Fd()), Events: unix.POLLHUP}}, 50); next > 0 {
				break
			}
		}
		if n > 0 && conn.WriteMessage(websocket.BinaryMessage, buf[:n]) != nil || err != nil {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	_ = conn.Close()
	reading.Wait()
	_ = terminal.Close()
}

// client is what kubectl has connected.
type client struct {
	in       io.Reader
	tty      bool
	out, err bytes.Buffer
	sizes    chan api.TermSize
}

func (c *client) Stdin() io.Reader            { return c.in }
func (c *client) Stdout() io.WriteCloser      { return closer{&c.out} }
func (c *client) Stderr() io.WriteCloser      { return closer{&c.err} }
func (c *client) TTY() bool                   { return c.tty }
func (c *client) Resize() <-chan api.TermSize { return c.sizes }

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// shells are the shells of this machine that containers have, too.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for name, args := range map[string][]string{"dash": {"dash"}, "bash": {"bash", "--norc", "--posix"}, "busybox": {"busybox", "sh"}} {
		if path, err := exec.LookPath(args[0]); err == nil {
			found[name] = append([]string{path}, args[1:]...)
		}
	}
	if len(found) == 0 {
		t.Fatal("this machine has no shell")
	}
	return found
}

// connected returns a provider with a pod that runs, and what is behind its WebSockets.
func connected(t *testing.T) (p nodeutil.Provider, s *terminals) {
	t.Helper()
	world := grouptest.New(0)
	server := acitest.New(world)
	s = &terminals{server: server}
	sockets := httptest.NewServer(s)
	t.Cleanup(func() { sockets.Close(); s.wg.Wait() })
	server.Sessions = "ws" + strings.TrimPrefix(sockets.URL, "http")
	cluster := grouptest.NewCluster("home")
	b, err := newBackend(testConfig(), connection{transport: server, credential: acitest.Credential(), dialer: &websocket.Dialer{}})
	if err != nil {
		t.Fatal(err)
	}
	o := b.options()
	o.CacheFor = time.Millisecond // these tests are in real time
	provider, _ := cluster.Start(t, b, o)
	pod := grouptest.NewPod("web")
	cluster.SetPod(pod)
	if err := provider.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		status, err := provider.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err == nil && status.Phase == "Running" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod does not run: %v, %v", status, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return provider, s
}

func TestExec(t *testing.T) {
	p, s := connected(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	binary := strings.Repeat(string(every), 20)
	long := strings.Repeat("a long line ", 1000)
	for shell, args := range shells(t) {
		s.shell = args
		for name, test := range map[string]struct {
			command    []string
			in         string
			out, err   string
			code       int
			tty, noEOL bool
		}{
			"words":          {command: []string{"printf", "[%s]", "a b", "", "it's", `"$HOME"`, "`id`", "$(id)", "*", "a\nb", "\ttab", "\\n", "ü", "!"}, out: "[a b][][it's][\"$HOME\"][`id`][$(id)][*][a\nb][\ttab][\\n][ü][!]"},
			"a long command": {command: []string{"printf", "%s", long}, out: long},
			"errors":         {command: []string{"sh", "-c", "echo out; echo err >&2; printf half >&2; exit 3"}, out: "out\n", err: "err\nhalf", code: 3},
			"no command":     {command: []string{"no-such-command"}, code: 127},
			"input":          {command: []string{"cat"}, in: "first\nsecond", out: "first\nsecond"},
			"binary":         {command: []string{"cat"}, in: binary, out: binary},
			"long input":     {command: []string{"cat"}, in: long, out: long},
			"exit code":      {command: []string{"sh", "-c", "exit 42"}, code: 42},
			"a terminal":     {command: []string{"sh", "-c", "test -t 0 && test -t 1 && echo yes; exit 5"}, tty: true, out: "yes\r\n", code: 5},
		} {
			t.Run(shell+"/"+name, func(t *testing.T) {
				c := &client{tty: test.tty}
				if test.in != "" {
					c.in = strings.NewReader(test.in)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := p.RunInContainer(ctx, "default", "web", "main", test.command, c)
				code := 0
				if exit, ok := errors.AsType[utilexec.ExitError](err); ok {
					code, err = exit.ExitStatus(), nil
				}
				if err != nil || code != test.code {
					t.Errorf("exit code %d, error %v", code, err)
				}
				if c.out.String() != test.out {
					t.Errorf("printed %.300q, want %.300q", c.out.String(), test.out)
				}
				if test.err != "" && c.err.String() != test.err {
					t.Errorf("errors %q, want %q", c.err.String(), test.err)
				}
			})
		}
	}
}

// Linux may report that a terminal has closed before the last that was printed there.
func TestExecWhereTerminalsLoseTheirEnd(t *testing.T) {
	p, s := connected(t)
	s.loseEnd = true
	for shell, args := range shells(t) {
		s.shell = args
		for _, tty := range []bool{false, true} {
			err := p.RunInContainer(t.Context(), "default", "web", "main", []string{"sh", "-c", "exit 42"}, &client{tty: tty})
			if exit, ok := errors.AsType[utilexec.ExitError](err); !ok || exit.ExitStatus() != 42 {
				t.Errorf("%s, terminal %v: %v; want exit code 42", shell, tty, err)
			}
		}
	}
}

// starting closes begun once the command has printed a word.
type starting struct {
	client
	begun chan struct{}
	once  sync.Once
}

func (c *starting) Stdout() io.WriteCloser { return closer{c} }

func (c *starting) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	if strings.Contains(c.out.String(), "begun") {
		c.once.Do(func() { close(c.begun) })
	}
	return n, err
}

// Ctrl-C ends the command, and with it the session: it does not leave the client in the shell.
func TestExecInterrupted(t *testing.T) {
	p, s := connected(t)
	for name, args := range shells(t) {
		s.shell = args
		in, keys := io.Pipe()
		c := &starting{client: client{in: in, tty: true}, begun: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var pressing sync.WaitGroup
		pressing.Go(func() { // until it has an effect: dash loses a signal that comes right before it executes a command
			select {
			case <-c.begun:
			case <-ctx.Done():
			}
			for ctx.Err() == nil {
				if _, err := keys.Write([]byte{3}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		err := p.RunInContainer(ctx, "default", "web", "main", []string{"sh", "-c", "echo begun; sleep 60"}, c)
		cancel()
		_ = in.Close()
		pressing.Wait()
		_ = keys.Close()
		if exit, ok := errors.AsType[utilexec.ExitError](err); !ok || exit.ExitStatus() != 130 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExecWithoutShell(t *testing.T) {
	p, _ := connected(t)
	c := &client{}
	if err := p.RunInContainer(t.Context(), "default", "web", "main", []string{"uname"}, c); err != nil || c.out.String() != "Linux\r\n" {
		t.Errorf("a single word: %q, %v", c.out.String(), err)
	}
	if err := p.RunInContainer(t.Context(), "default", "web", "main", []string{"echo", "a"}, c); !errors.Is(err, errNoShell) {
		t.Errorf("a command with arguments: %v", err)
	}
}

func TestExecEndsWithContext(t *testing.T) {
	p, s := connected(t)
	for _, s.shell = range shells(t) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		err := p.RunInContainer(ctx, "default", "web", "main", []string{"sleep", "5"}, &client{})
		cancel()
		if err == nil || ctx.Err() == nil {
			t.Errorf("a command that was given up: %v", err)
		}
	}
}

func TestAttach(t *testing.T) {
	p, _ := connected(t)
	c := &client{}
	if err := p.AttachToContainer(t.Context(), "default", "web", "main", c); err != nil || c.out.String() != "line one\nline two\n" {
		t.Errorf("%q, %v", c.out.String(), err)
	}
	if err := p.AttachToContainer(t.Context(), "default", "web", "main", &client{in: strings.NewReader("a")}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("with input: %v", err)
	}
}

// Commands' output in pieces of any size, also in the middle of a mark.
func TestMarks(t *testing.T) {
	const token = "TOKEN"
	text := "echo\001\\001 \001Xno\001BTOKENone\001\001BTOKE\001STOKENbad\n\001TTOKENtwo\001ETOKEN7;rest"
	for size := 1; size <= len(text); size++ {
		c := &client{}
		s := &session{attach: c, token: token}
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			if err := s.output([]byte(rest[:min(size, len(rest))])); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprintf("%s|%s|%d", &c.out, &c.err, s.code); got != "one\001\001BTOKEtwo|bad\n|7" {
			t.Fatalf("in pieces of %d: %q", size, got)
		}
	}
	c := &client{} // a container may know the token, and print what never becomes a mark
	s := &session{attach: c, token: token, begun: true}
	hostile := "\001ETOKEN" + strings.Repeat("1", 1<<16)
	for i := range len(hostile) {
		if err := s.output([]byte(hostile[i : i+1])); err != nil {
			t.Fatal(err)
		}
		if len(s.pending) > 20 {
			t.Fatalf("%d bytes of output are kept", len(s.pending))
		}
	}
	if c.out.String() != hostile {
		t.Errorf("printed %d bytes of %d", c.out.Len(), len(hostile))
	}
	if err := (&session{attach: &client{}, token: token, begun: true}).over(t.Context(), nil); !errdefs.IsUnavailable(err) {
		t.Errorf("a command whose end does not arrive: %v", err)
	}
}
