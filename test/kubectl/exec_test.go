//go:build integration

package kubectl

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

func testExec(t *testing.T, u user, n *testNode) {
	t.Run("exit codes", func(t *testing.T) {
		for _, want := range []int{0, 1, 42} {
			stdout, stderr, code := u.result(t, nil, "exec", "pod", "-c", "main", "--", "sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", want))
			if code != want || stdout != "out\n" || !strings.HasPrefix(stderr, "err\n") {
				t.Errorf("exit %d: code %d, output %q, error output %q", want, code, stdout, stderr)
			}
		}
		for _, command := range [][]string{{"no-such-command"}, {"sh", "-c", "no-such-command"}} {
			_, stderr, code := u.result(t, nil, append([]string{"exec", "pod", "-c", "main", "--"}, command...)...)
			if code != 127 || !strings.Contains(stderr, "command terminated with exit code 127") {
				t.Errorf("%v: code %d and %q, want 127", command, code, stderr)
			}
		}
	})

	t.Run("unknown container", func(t *testing.T) {
		_, stderr, code := u.result(t, nil, "exec", "pod", "-c", "other", "--", "true")
		if code != 1 || !strings.Contains(stderr, "container not found") && !strings.Contains(stderr, "not valid") {
			t.Errorf("code %d and %q", code, stderr)
		}
	})

	t.Run("arguments", func(t *testing.T) { // arrive as they are
		args := []string{"a b", "", "*", "ä&=?#%20+", "'\"\\"}
		got := u.run(t, append([]string{"exec", "pod", "-c", "main", "--", "printf", "[%s]"}, args...)...)
		if want := "[" + strings.Join(args, "][") + "]"; got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	})

	t.Run("input", func(t *testing.T) {
		data := randomBytes(8 << 20)
		sum, stderr, code := u.result(t, bytes.NewReader(data), "exec", "-i", "pod", "-c", "main", "--", "sha256sum")
		if code != 0 || !strings.HasPrefix(sum, sha256Of(data)) {
			t.Errorf("the sum of the input is %q in the pod, want %s; code %d, %s", sum, sha256Of(data), code, stderr)
		}
		back, stderr, code := u.result(t, bytes.NewReader(data), "exec", "-i", "pod", "-c", "main", "--", "cat")
		if code != 0 || back != string(data) {
			t.Errorf("%d of %d bytes came back, as they were: %t; code %d, %s", len(back), len(data), back == string(data), code, stderr)
		}
	})

	t.Run("no input", func(t *testing.T) { // is an input that ends at once
		if got := u.run(t, "exec", "-i", "pod", "-c", "main", "--", "sh", "-c", "cat; echo done"); got != "done\n" {
			t.Errorf("printed %q", got)
		}
	})

	t.Run("many at once", func(t *testing.T) {
		var group errgroup.Group
		for i := range 8 {
			want := strings.Repeat(fmt.Sprintf("%d\n", i), 10_000)
			group.Go(func() error {
				out, err := u.kubectl(t.Context(), "exec", "pod", "-c", "main", "--", "sh", "-c", fmt.Sprintf("yes %d | head -n 10000", i)).Output()
				if err == nil && string(out) != want {
					err = fmt.Errorf("of %d bytes %d came", len(want), len(out))
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})

	t.Run("unread input", func(t *testing.T) { // does not hold up the end of the command
		_, stderr, code := u.result(t, bytes.NewReader(randomBytes(8<<20)), "exec", "-i", "pod", "-c", "main", "--", "sh", "-c", "exit 3")
		if code != 3 {
			t.Errorf("code %d and %q, want 3", code, stderr)
		}
	})

	t.Run("killed client", func(t *testing.T) { // takes its command with it
		noneLeft := func() {
			t.Helper()
			eventually(t, "the command has ended", func() (bool, string) {
				left := processesIn(t, n.dir)
				return len(left) == 0, fmt.Sprint(left)
			})
		}
		b := u.start(t, "exec", "pod", "-c", "main", "--", "sh", "-c", "echo ready; sleep 1000")
		eventually(t, "the command runs", func() (bool, string) { return strings.Contains(b.out.String(), "ready"), b.out.String() })
		b.kill()
		noneLeft()

		term := u.onTerminal(t, pty.Winsize{Rows: 24, Cols: 80}, "exec", "-it", "pod", "-c", "main", "--", "sh", "-c", "echo ready; sleep 1000")
		term.waitFor("ready")
		term.kill()
		noneLeft()
	})

	t.Run("terminal", func(t *testing.T) { testTerminal(t, u) })
}

// testEndOfPod deletes a pod while a command runs in it.
func testEndOfPod(t *testing.T, u user, n *testNode) {
	runPod(t, u.namespace, "ends", n.podSpec(corev1.Container{Name: "c", Image: "test"}), nil)
	command := u.start(t, "exec", "ends", "--", "sh", "-c", "echo ready; sleep 1000")
	eventually(t, "the command runs", func() (bool, string) {
		return strings.Contains(command.out.String(), "ready"), command.out.String()
	})
	u.run(t, "delete", "pod", "ends")
	if code := command.wait(t); code != 137 {
		t.Errorf("kubectl exec ended with %d, want 137: %s", code, command.out)
	}
}

// testTerminal works on a terminal in the pod as a person does.
func testTerminal(t *testing.T, u user) {
	term := u.onTerminal(t, pty.Winsize{Rows: 30, Cols: 100}, "exec", "-it", "pod", "-c", "main", "--", "sh")
	term.enter("tty")
	term.waitFor("/dev/pts/")
	// The first size comes a moment after the command has started.
	term.enterUntil("stty size", "30 100")
	term.resize(pty.Winsize{Rows: 51, Cols: 123})
	term.enterUntil("stty size", "51 123")

	// Another shell prints, since of this one a child could get the signal before it sleeps,
	// and drop it.
	term.enter("sh -c 'echo begin; exec sleep 1000'")
	term.waitFor("\r\nbegin\r\n")
	term.write("\x03") // Ctrl-C
	term.enterUntil("echo code=$?", "code=130")

	term.enter("exit 42")
	if code := term.wait(); code != 42 {
		t.Errorf("after exit 42 kubectl ended with %d; the terminal shows\n%s", code, term.out)
	}
}

// terminal is a kubectl that runs on a terminal.
type terminal struct {
	t     *testing.T
	cmd   *exec.Cmd
	file  *os.File
	out   *lockedbuffer.Buffer
	ended chan struct{}
}

func (u user) onTerminal(t *testing.T, size pty.Winsize, args ...string) *terminal {
	t.Helper()
	cmd := u.kubectl(context.WithoutCancel(t.Context()), args...)
	cmd.Env = append(cmd.Env, "TERM=dumb")
	file, err := pty.StartWithSize(cmd, &size)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, cmd: cmd, file: file, out: &lockedbuffer.Buffer{}, ended: make(chan struct{})}
	go func() {
		defer close(term.ended)
		_, _ = io.Copy(term.out, file) // ends with kubectl
		_ = cmd.Wait()                 // the exit code is what counts
	}()
	t.Cleanup(func() {
		term.kill()
		_ = file.Close()
	})
	return term
}

func (term *terminal) kill() {
	_ = term.cmd.Process.Kill() // fails if it has ended
	<-term.ended
}

func (term *terminal) write(text string) {
	term.t.Helper()
	if _, err := io.WriteString(term.file, text); err != nil {
		term.t.Fatalf("cannot type %q: %v; the terminal shows\n%s", text, err, term.out)
	}
}

func (term *terminal) enter(line string) {
	term.t.Helper()
	term.write(line + "\r")
}

// waitFor waits until the terminal shows text.
func (term *terminal) waitFor(text string) {
	term.t.Helper()
	eventually(term.t, fmt.Sprintf("%q is shown", text), func() (bool, string) {
		shown := term.out.String()
		return strings.Contains(shown, text), shown
	})
}

// enterUntil enters a line again and again until the terminal shows text.
func (term *terminal) enterUntil(line, text string) {
	term.t.Helper()
	next := time.Now()
	eventually(term.t, fmt.Sprintf("%q is shown", text), func() (bool, string) {
		if now := time.Now(); now.After(next) {
			term.enter(line)
			next = now.Add(time.Second)
		}
		shown := term.out.String()
		return strings.Contains(shown, text), shown
	})
}

func (term *terminal) resize(size pty.Winsize) {
	term.t.Helper()
	if err := pty.Setsize(term.file, &size); err != nil {
		term.t.Fatal(err)
	}
}

// wait waits until kubectl ends, and returns its exit code.
func (term *terminal) wait() int {
	term.t.Helper()
	select {
	case <-term.ended:
	case <-time.After(patience):
		term.t.Fatalf("kubectl does not end; the terminal shows\n%s", term.out)
	}
	return term.cmd.ProcessState.ExitCode()
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return data
}
