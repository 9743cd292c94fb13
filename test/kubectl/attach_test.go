//go:build integration

package kubectl

import (
	"strings"
	"testing"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
)

// attachable are containers whose main processes are there to be attached to.
func attachable() []corev1.Container {
	return []corev1.Container{
		{Name: "main", Image: "test", Command: []string{"sh", "-c", "echo printed; echo wrong >&2"}},
		{Name: "input", Image: "test", Stdin: true, StdinOnce: true, Command: []string{"sh", "-c", "echo ready; exec cat"}},
		{Name: "terminal", Image: "test", Stdin: true, TTY: true, Command: []string{"sh"}},
	}
}

func testAttach(t *testing.T, u user) {
	t.Run("output", func(t *testing.T) {
		stdout, stderr, code := u.result(t, nil, "attach", "pod", "-c", "main")
		if code != 0 || stdout != "printed\n" || !strings.Contains(stderr, "wrong\n") {
			t.Errorf("code %d, output %q, error output %q", code, stdout, stderr)
		}
	})
	t.Run("input", func(t *testing.T) {
		stdout, stderr, code := u.result(t, strings.NewReader("one\ntwo\r\n"), "attach", "-i", "pod", "-c", "input")
		if code != 0 || !strings.HasSuffix(stdout, "ready\none\ntwo\r\n") {
			t.Errorf("code %d, output %q, error output %q", code, stdout, stderr)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		term := u.onTerminal(t, pty.Winsize{Rows: 31, Cols: 101}, "attach", "-it", "pod", "-c", "terminal")
		term.enterUntil("tty", "/dev/pts/")
		term.enterUntil("stty size", "31 101")
		term.resize(pty.Winsize{Rows: 52, Cols: 124})
		term.enterUntil("stty size", "52 124")
		term.enter("exit")
		if code := term.wait(); code != 0 {
			t.Errorf("kubectl ended with %d; the terminal shows\n%s", code, term.out)
		}
	})
}

// testDebug adds ephemeral containers to a pod that runs.
func testDebug(t *testing.T, u user) {
	t.Run("terminal", func(t *testing.T) {
		term := u.onTerminal(t, pty.Winsize{Rows: 32, Cols: 102},
			"debug", "-it", "pod", "--image=test", "--container=shell", "--target=main", "--", "sh")
		term.enterUntil("tty", "/dev/pts/")
		term.enterUntil("stty size", "32 102")
		term.enter("exit")
		if code := term.wait(); code != 0 {
			t.Errorf("kubectl ended with %d; the terminal shows\n%s", code, term.out)
		}
	})
	t.Run("in the background", func(t *testing.T) {
		u.run(t, "debug", "pod", "--image=test", "--container=helper", "--", "sh", "-c", "echo from the helper")
		eventually(t, "the ephemeral container runs", func() (bool, string) {
			state := u.run(t, "get", "pod", "pod", "-o", `jsonpath={.status.ephemeralContainerStatuses[?(@.name=="helper")].state}`)
			return strings.Contains(state, `"running"`), state
		})
		if got := u.run(t, "attach", "pod", "-c", "helper"); got != "from the helper\n" {
			t.Errorf("attached to it, kubectl printed %q", got)
		}
		if got := u.run(t, "logs", "pod", "-c", "helper"); !strings.Contains(got, "helper") {
			t.Errorf("its log is %q", got)
		}
		if got := u.run(t, "exec", "pod", "-c", "helper", "--", "echo", "there"); got != "there\n" {
			t.Errorf("in it, echo printed %q", got)
		}
		if got := u.run(t, "describe", "pod", "pod"); !strings.Contains(got, "Ephemeral Containers:") || !strings.Contains(got, "helper:") {
			t.Errorf("the description does not have it:\n%s", got)
		}
	})
}
