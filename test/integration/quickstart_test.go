//go:build integration

package integration

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// quickstart is a run of scripts/quickstart.sh.
type quickstart struct {
	t   *testing.T
	dir string
	*daemon.Process
	out   *lockedbuffer.Buffer
	pipe  *os.File      // what the script prints comes out here, until it is closed
	ready chan struct{} // closed when it says that it is
}

func startQuickstart(t *testing.T) *quickstart {
	t.Helper()
	q := &quickstart{t: t, dir: filepath.Join(t.TempDir(), ".quickstart"), out: &lockedbuffer.Buffer{}, ready: make(chan struct{})}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	q.pipe = read
	if q.Process, err = daemon.Launch(exec.Command("../../scripts/quickstart.sh", bin, q.dir), write); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	go func() {
		lines := bufio.NewScanner(read)
		for ready := false; lines.Scan(); {
			_, _ = io.WriteString(q.out, lines.Text()+"\n")
			if !ready && strings.Contains(lines.Text(), "Ctrl-C stops") {
				ready = true
				close(q.ready)
			}
		}
	}()
	t.Cleanup(func() { // also where the test gave up
		_ = read.Close()
		_ = q.Signal(os.Kill)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if _, err := os.Stat(q.dir); os.IsNotExist(err) {
				break
			}
		}
	})
	return q
}

func (q *quickstart) awaitReady() {
	q.t.Helper()
	select {
	case <-q.Done():
		q.t.Fatalf("the quickstart ended: %v\n%s", q.Err(), q.out)
	case <-time.After(patience):
		q.t.Fatalf("the quickstart does not get ready:\n%s", q.out)
	case <-q.ready:
	}
}

// wantNothingLeft waits until the directory is gone, and no process is left that names it: that
// which removes it ends a moment later.
func (q *quickstart) wantNothingLeft() {
	q.t.Helper()
	eventually(q.t, "the quickstart is removed", func(context.Context) (bool, string) {
		_, err := os.Stat(q.dir)
		return os.IsNotExist(err), "its directory is there"
	})
	eventually(q.t, "no process of the quickstart is left", func(context.Context) (bool, string) {
		left := processesNaming(q.t, q.dir)
		return len(left) == 0, strings.Join(left, "\n")
	})
}

// processesNaming returns the command lines that have a path in them.
func processesNaming(t *testing.T, path string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), path) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// runPods runs pods in it, for its end to end.
func (q *quickstart) runPods() {
	q.t.Helper()
	q.run(filepath.Join(q.dir, "kubectl") + ` run sleeper --image=none --command -- sleep infinity
` + filepath.Join(q.dir, "kubectl") + ` wait --for=condition=Ready --timeout=120s pod/sleeper`)
}

func (q *quickstart) run(script string) {
	q.t.Helper()
	if printed, err := exec.CommandContext(q.t.Context(), "bash", "-ec", script).CombinedOutput(); err != nil {
		q.t.Errorf("a command fails: %v\n%s\n%s", err, script, printed)
	}
}

// The quickstart does what it prints, and leaves nothing behind, however it ends.
func TestQuickstart(t *testing.T) {
	t.Parallel() // it waits most of the time
	t.Run("does what it prints", func(t *testing.T) {
		q := startQuickstart(t)
		q.awaitReady()
		commands := regexp.MustCompile(`(?m)^  \S*kubectl .*$`).FindAllString(q.out.String(), -1)
		if len(commands) < 7 {
			t.Errorf("the quickstart prints %d commands to try:\n%s", len(commands), q.out)
		}
		var script strings.Builder
		for _, command := range commands {
			if strings.Contains(command, "kubectl top") {
				// metrics-server has its first figures after two rounds.
				script.WriteString("for i in $(seq 120); do " + command + " 2>/dev/null && break; sleep 1; done\n")
			}
			script.WriteString(command + "\n")
			if strings.Contains(command, "kubectl run") {
				script.WriteString(filepath.Join(q.dir, "kubectl") + " wait --for=condition=Ready --timeout=120s pod/hello\n")
			}
		}
		q.run(script.String())
		events, err := exec.CommandContext(t.Context(), filepath.Join(q.dir, "kubectl"), "get", "events", "--field-selector=reason=MissingClusterDNS").CombinedOutput()
		if err != nil || !strings.Contains(string(events), "No resources found") {
			t.Errorf("there is a warning of a cluster DNS that there is not (%v):\n%s", err, events)
		}
		if err := q.Stop(os.Interrupt); err != nil {
			t.Errorf("Ctrl-C: %v\n%s", err, q.out)
		}
		q.wantNothingLeft()
	})
	// As in "make quickstart | tee log", where Ctrl-C ends tee, too.
	t.Run("Ctrl-C with a broken pipe", func(t *testing.T) {
		q := startQuickstart(t)
		q.awaitReady()
		q.runPods()
		if err := q.pipe.Close(); err != nil {
			t.Fatal(err)
		}
		_ = q.Stop(os.Interrupt)
		q.wantNothingLeft()
	})
	t.Run("a closed terminal", func(t *testing.T) {
		q := startQuickstart(t)
		eventually(t, "the control plane is started", func(context.Context) (bool, string) {
			_, err := os.Stat(filepath.Join(q.dir, "controlplane"))
			return err == nil, q.out.String()
		})
		_ = q.Stop(syscall.SIGHUP)
		q.wantNothingLeft()
	})
	t.Run("SIGKILL", func(t *testing.T) {
		q := startQuickstart(t)
		q.awaitReady()
		q.runPods()
		_ = q.Stop(os.Kill)
		q.wantNothingLeft()
	})
}
