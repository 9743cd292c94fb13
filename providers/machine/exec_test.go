package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func execOf(t *testing.T, script string) (d Driver, dir string) {
	t.Helper()
	dir = t.TempDir()
	d, err := NewExec([]string{"sh", "-c", `cat > "$0/in.$1"; echo "$*" > "$0/args"; ` + script, dir})
	if err != nil {
		t.Fatal(err)
	}
	return d, dir
}

func TestExec(t *testing.T) {
	d, dir := execOf(t, `echo '{"id": "i-1", "name": "a-1", "address": "192.0.2.1", "machines": [{"name": "a-1", "tags": {"UID": "1"}}], "text": "0123456789"}'`)
	m, err := d.Create(t.Context(), Spec{Name: "a-1", UserData: "secret", Tags: map[string]string{"UID": "1"}})
	if err != nil || m.ID != "i-1" || m.Address != "192.0.2.1" {
		t.Errorf("the machine is %+v: %v", m, err)
	}
	args, _ := os.ReadFile(filepath.Join(dir, "args"))
	in, _ := os.ReadFile(filepath.Join(dir, "in.create"))
	if strings.Contains(string(args), "secret") || !strings.Contains(string(in), `"userData":"secret"`) {
		t.Errorf("the arguments are %s, the input %s", args, in)
	}
	if list, err := d.List(t.Context(), nil); err != nil || len(list) != 1 || list[0].Tags["UID"] != "1" {
		t.Errorf("the list is %v: %v", list, err)
	}
	if err := d.Delete(t.Context(), m); err != nil {
		t.Error(err)
	}
	if text, err := d.Console(t.Context(), m, 4); err != nil || text != "6789" {
		t.Errorf("the console is %q: %v", text, err)
	}
}

// A list that is none is an error, and never empty.
func TestExecThatFails(t *testing.T) {
	for _, script := range []string{"exit 1", "true", "echo '{}'", "echo '[]'", `echo '{"machines": null}'`, `echo '{"machines": [{}]}'`, `echo '{"machines": [{"name": "a", "state": "odd"}]}'`,
		`echo '{"machines": [{"name": "a", "address": "example.com"}]}'`, `echo '{"machines": [{"name": "a", "address": "fe80::1%eth0"}]}'`, `echo '{"machines": []}'; exit 1`, "kill -9 $$"} {
		d, _ := execOf(t, script)
		if list, err := d.List(t.Context(), nil); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: the list is %v: %v", script, list, err)
		}
	}
	d, _ := execOf(t, "echo no such size >&2; exit 4")
	if _, err := d.Create(t.Context(), Spec{}); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "no such size") {
		t.Errorf("a refusal is %v", err)
	}
	if err := d.Delete(t.Context(), Machine{}); err == nil || errdefs.IsPermanent(err) {
		t.Errorf("a deletion that fails is %v", err)
	}
	d, _ = execOf(t, "exit 3")
	if _, err := d.Console(t.Context(), Machine{}, 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no console is %v", err)
	}
}

// A command that hangs is ended with all that it has started, but for what has a session of its own:
// the machine.
func TestExecThatHangs(t *testing.T) {
	d, dir := execOf(t, `sleep 1000 & echo $! > "$0/child"
		setsid sh -c 'echo $$ > "$0/machine"; touch "$0/ready"; exec sleep 1000' "$0" </dev/null >/dev/null 2>&1 & wait`)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
				cancel(errors.New("it hangs"))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if _, err := d.List(ctx, nil); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("the list is %v", err)
	}
	lives := func(name string) (int, bool) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return pid, err == nil && !strings.Contains(string(state), ") Z ")
	}
	deadline := time.Now().Add(time.Minute)
	for pid, alive := lives("child"); alive; pid, alive = lives("child") {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	pid, alive := lives("machine")
	if !alive {
		t.Error("the machine is gone")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
