package fargate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
)

// client is a client of a command.
type client struct {
	in       io.Reader
	out, err buffer
	tty      bool
	sizes    chan api.TermSize
}

func (c *client) Stdin() io.Reader            { return c.in }
func (c *client) Stdout() io.WriteCloser      { return &c.out }
func (c *client) Stderr() io.WriteCloser      { return &c.err }
func (c *client) TTY() bool                   { return c.tty }
func (c *client) Resize() <-chan api.TermSize { return c.sizes }

// buffer is read while it is written.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
	closed bool
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func (*buffer) Close() error { return nil }

// runningPod returns what runs commands in a pod before a fake, in real time: they run on this
// machine.
func runningPod(t *testing.T, cfg Config, faults ecstest.Faults) func(context.Context, *client, ...string) error {
	t.Helper()
	server := ecstest.New(grouptest.New(time.Millisecond))
	server.Faults = faults
	return runningPodOn(t, cfg, server)
}

func runningPodOn(t *testing.T, cfg Config, server *ecstest.Server) func(context.Context, *client, ...string) error {
	t.Helper()
	cluster := grouptest.NewCluster("home")
	b := connect(t, server, cfg)
	options := b.options()
	options.CacheFor = time.Millisecond
	p, _ := cluster.Start(t, b, options)
	pod := grouptest.NewPod("web")
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		pod, err := p.GetPod(t.Context(), "default", "web")
		if err != nil {
			t.Fatal(err)
		}
		if pod.Status.Phase == "Running" {
			break
		}
	}
	return func(ctx context.Context, c *client, command ...string) error {
		if c.sizes == nil {
			c.sizes = make(chan api.TermSize)
		}
		return p.RunInContainer(ctx, "default", "web", "main", command, c)
	}
}

func code(err error) int {
	var exit utilexec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitStatus()
	}
	if err != nil {
		return -1
	}
	return 0
}

func TestExec(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	binary := strings.Repeat(string(all), 40)
	tests := map[string]struct {
		command  []string
		in       string
		tty      bool
		out, err string
		code     int
	}{
		"outputs apart":       {command: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, out: "out\n", err: "err\n", code: 3},
		"words":               {command: []string{"printf", "%s|", "it's", `"$HOME"`, "", "a\nb", `\`, "#", "$(id)", "{{ssm:x}}"}, out: "it's|\"$HOME\"||a\nb|\\|#|$(id)|{{ssm:x}}|"},
		"ends of lines":       {command: []string{"printf", `a\r\nb\nc\r`}, out: "a\r\nb\nc\r"},
		"marks":               {command: []string{"printf", `\036x\036\036`}, out: "\x1ex\x1e\x1e"},
		"no end of line":      {command: []string{"sh", "-c", "printf out; printf 'a b  ' >&2"}, out: "out", err: "a b  \n"},
		"no input":            {command: []string{"cat"}},
		"input":               {command: []string{"cat"}, in: binary, out: binary},
		"long input":          {command: []string{"sh", "-c", "wc -c | tr -d ' '"}, in: strings.Repeat("0123456789abcde\n", 2<<10), out: "32768\n"},
		"input nobody reads":  {command: []string{"true"}, in: strings.Repeat("x", 100_000)},
		"unknown command":     {command: []string{"no-such-command"}, code: 127},
		"killed":              {command: []string{"sh", "-c", "kill -9 $$"}, code: 137},
		"terminal":            {command: []string{"sh", "-c", "echo out; echo err >&2; exit 4"}, tty: true, out: "out\r\nerr\r\n", code: 4},
		"input of a terminal": {command: []string{"sh", "-c", `read a; echo "got $a"`}, in: "hello\n", tty: true, out: "hello\r\ngot hello\r\n"},
	}
	for kind, faults := range map[string]ecstest.Faults{"in order": {}, "on a terminal that loses its end": {LoseEnd: true}, "with messages in disorder": {Swap: true, Repeat: true}} {
		run := runningPod(t, testConfig(), faults)
		for name, test := range tests {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				c := &client{tty: test.tty}
				if test.in != "" {
					c.in = strings.NewReader(test.in)
				}
				err := run(t.Context(), c, test.command...)
				if got := c.err.String(); code(err) != test.code || c.out.String() != test.out || got != test.err && test.code < 127 {
					t.Errorf("%q, %q, %v; want %q, %q, code %d", tail(c.out.String()), got, err, tail(test.out), test.err, test.code)
				}
			})
		}
	}
}

func tail(text string) string { return text[max(0, len(text)-300):] }

func TestExecOfATerminalThatChanges(t *testing.T) {
	t.Parallel()
	run := runningPod(t, testConfig(), ecstest.Faults{DropInput: 2})
	r, w := io.Pipe()
	defer r.Close()
	c := &client{tty: true, in: r, sizes: make(chan api.TermSize)}
	var ended sync.WaitGroup
	ended.Go(func() {
		c.sizes <- api.TermSize{Width: 100, Height: 40}
		for _, line := range []string{"until stty size | grep '40 100'; do sleep 0.1; done\n", "exit 7\n"} { // sizes and input come in no order
			_, _ = io.WriteString(w, line) // each waits for the one before, which was lost
		}
	})
	if err := run(t.Context(), c, "sh"); code(err) != 7 || !strings.Contains(c.out.String(), "40 100\r\n") {
		t.Errorf("%q, %v", c.out.String(), err)
	}
	ended.Wait()
}

// whenReady is an input that comes when the output has a word.
type whenReady struct {
	out  *buffer
	text string
}

func (r *whenReady) Read(p []byte) (int, error) {
	for !strings.Contains(r.out.String(), "ready") {
		runtime.Gosched()
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestExecThatIsInterrupted(t *testing.T) {
	t.Parallel()
	run := runningPod(t, testConfig(), ecstest.Faults{})
	c := &client{tty: true}
	c.in = &whenReady{&c.out, "\x03"}
	if err := run(t.Context(), c, "sh", "-c", "echo ready; exec sleep 100"); code(err) != 130 {
		t.Errorf("%q, %v", c.out.String(), err)
	}
}

// The agent that runs commands may not be there yet when its container runs.
func TestExecBeforeTheAgentIsThere(t *testing.T) {
	t.Parallel()
	server := ecstest.New(grouptest.New(time.Millisecond))
	run := runningPodOn(t, testConfig(), server)
	server.World.Refuse("ExecuteCommand", 1, &grouptest.Refusal{Status: 400, Code: "InvalidParameterException", Message: "The execute command failed because execute command was not enabled when the task was run or the execute command agent isn’t running. Wait and try again or run a new task with execute command enabled and try again."})
	out := &client{}
	if err := run(t.Context(), out, "echo", "first"); err != nil || out.out.String() != "first\n" {
		t.Errorf("%q, %v", out.out.String(), err)
	}
	server.World.Refuse("ExecuteCommand", 1, &grouptest.Refusal{Status: 400, Code: "TargetNotConnectedException", Message: "The execute command failed due to an internal error. Try again later."})
	out = &client{}
	if err := run(t.Context(), out, "echo", "second"); err != nil || out.out.String() != "second\n" {
		t.Errorf("%q, %v", out.out.String(), err)
	}
}

func TestExecThatCannotBe(t *testing.T) {
	t.Parallel()
	noRole := testConfig()
	noRole.TaskRoleArn = ""
	run := runningPod(t, noRole, ecstest.Faults{})
	if err := run(t.Context(), &client{}, "true"); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), "taskRoleArn") {
		t.Errorf("without a role: %v", err)
	}
	run = runningPod(t, testConfig(), ecstest.Faults{Encrypt: true})
	if err := run(t.Context(), &client{}, "true"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "KMSEncryption") {
		t.Errorf("with encryption: %v", err)
	}
	run = runningPod(t, testConfig(), ecstest.Faults{})
	r, w := io.Pipe()
	defer w.Close()
	if err := run(t.Context(), &client{in: r}, "true"); err != nil { // nobody ends the input
		t.Errorf("a command that does not read: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := run(ctx, &client{}, "sleep", "100"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a client that leaves: %v", err)
	}
}

// A command ends with its client, also if what that has sent was lost on the way. The agent would
// have it go on.
func TestExecOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	server := ecstest.New(grouptest.New(time.Millisecond))
	server.Faults.DropInput = 1
	run := runningPodOn(t, testConfig(), server)
	r, w := io.Pipe()
	var writing sync.WaitGroup
	writing.Go(func() { _, _ = io.WriteString(w, "lost\n") })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := run(ctx, &client{in: r}, "sleep", "100"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	_ = w.Close()
	writing.Wait()
	closed := &client{}
	closed.out.closed = true
	if err := run(t.Context(), closed, "sh", "-c", "echo; exec sleep 100"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a client that takes no output: %v", err)
	}
	if n := server.Abandoned(); n != 0 {
		t.Errorf("%d commands go on", n)
	}
}
