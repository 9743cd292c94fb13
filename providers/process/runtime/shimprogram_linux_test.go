package runtime_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// buildShim builds the program of shims as the binary has it.
func buildShim(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shim")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./shim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(path)
	must(t, err)
	return program
}

// A container under the program for shims runs as under this executable, is found again, and its
// shim has at most 3 MB of memory that it shares with nothing.
func TestShimProgramAsRoot(t *testing.T) {
	program := buildShim(t)
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("trap 'exit 7' TERM; echo hello; while :; do sleep 0.1; done"))
		n.waitLog(id, "hello")
		out, _, err := n.ExecSync(ctx, id, []string{"echo", "out"}, patience)
		if string(out) != "out\n" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
		pid := n.started(id).ShimPID
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); !strings.HasPrefix(exe, "/memfd:") || err != nil {
			t.Errorf("the shim runs %q, %v", exe, err)
		}
		n.start(sh("exec sleep 1000")) // with which the first one shares its program
		if own := ownKB(t, pid); own > 3000 {
			t.Errorf("the shim has %d KB of its own", own)
		} else {
			t.Logf("the shim has %d KB of its own", own)
		}
		n.reopen()
		must(t, n.StopContainer(ctx, id, 20))
		if code := n.ended(id).ExitCode; code != 7 {
			t.Errorf("exit code %d", code)
		}
	}, func(c *runtime.Config) { c.ShimProgram = program })
}

// ownKB is the memory of a process that no other one shares, in kilobytes.
func ownKB(t *testing.T, pid int) (sum int) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	must(t, err)
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		if name == "Private_Clean" || name == "Private_Dirty" {
			var kb int
			if _, err := fmt.Sscanf(rest, "%d", &kb); err != nil {
				t.Fatal(err)
			}
			sum += kb
		}
	}
	return sum
}

// A program that cannot be run is not used.
func TestShimProgramThatCannotRun(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exit 3"))
		if code := n.ended(id).ExitCode; code != 3 {
			t.Errorf("exit code %d", code)
		}
	}, func(c *runtime.Config) { c.ShimProgram = []byte("no program") })
}
