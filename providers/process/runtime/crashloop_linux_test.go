//go:build containers

package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

// A runtime that is killed at any moment leaves nothing that runs unknown, and
// nothing that runs twice.
func TestKilledAtAnyMoment(t *testing.T) {
	rounds := 30
	if testing.Short() || os.Getenv("TEST_WITHOUT_ROOT") != "" {
		rounds = 8
	}
	each(t, func(t *testing.T, n *node) {
		root := filepath.Dir(n.cfg.Root)
		must(t, n.Close(ctx))
		config := crashingConfig(root)
		config.Isolation = n.cfg.Isolation
		n.cfg = config
		for range rounds / 2 {
			runCrashing(t, root, config.Isolation)
			n.open()
			n.checkRuns()
			// It can go on with what it has.
			for _, id := range n.ids() {
				if n.status(id).State == runtimeapi.ContainerState_CONTAINER_CREATED {
					must(t, n.StartContainer(ctx, id))
				}
			}
			n.checkRuns()
			must(t, n.Close(ctx))
		}
		n.open()
	})
}

// runCrashing runs a node for a moment, and kills it.
func runCrashing(t *testing.T, root, isolation string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "TEST_CRASHING_ROOT="+root, "TEST_CRASHING_ISOLATION="+isolation)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = stdout.Read(make([]byte, 16))
	must(t, err)
	time.Sleep(time.Duration(rand.IntN(200_000)) * time.Microsecond)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if stderr.Len() > 0 {
		t.Errorf("the node said: %s", &stderr)
	}
}

// checkRuns sees whether each container that should run does, once, and no other.
func (n *node) checkRuns() {
	n.t.Helper()
	all, err := procfs.All()
	must(n.t, err)
	known := n.ids()
	for _, id := range known {
		s, count := n.status(id), 0
		for _, p := range all {
			if !p.Dead() && procfs.HasEnv(p.PID, "VIRTUAL_KUBELET_CONTAINER_ID="+id) {
				count++
			}
		}
		out, _ := n.logs(id)
		running := s.State == runtimeapi.ContainerState_CONTAINER_RUNNING
		switch {
		case running && !alive(n.started(id).PID):
			n.t.Errorf("%s is said to run, and does not", id)
		case !running && count > 0:
			n.t.Errorf("%s is in state %v, and has %d processes", id, s.State, count)
		case strings.Count(out, "ran") > 1:
			n.t.Errorf("%s ran twice: %q", id, out)
		case s.State == runtimeapi.ContainerState_CONTAINER_EXITED && s.Reason != "ContainerStatusUnknown":
			n.t.Errorf("%s has ended: %v", id, s)
		}
	}
}

// A shim that is killed at any moment of a start leaves nothing either.
func TestShimIsKilledWhileItStarts(t *testing.T) {
	rounds := 20
	if testing.Short() || os.Getenv("TEST_WITHOUT_ROOT") != "" {
		rounds = 6
	}
	each(t, func(t *testing.T, n *node) {
		for range rounds {
			id := n.create(sh("echo ran; exec sleep 1000"))
			done := make(chan error)
			go func() { done <- n.StartContainer(ctx, id) }()
			eventually(t, "a shim", func() bool { return shimOf(t, id) != 0 })
			time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond)
			if pid := shimOf(t, id); pid != 0 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			<-done
			if s := n.ended(id); s.ExitCode != 137 || s.Reason != "ContainerStatusUnknown" {
				t.Errorf("%v", s)
			}
			n.checkProcesses(map[string]bool{"VIRTUAL_KUBELET_CONTAINER_ID=" + id: true})
		}
	})
}

// shimOf finds a container's shim by its arguments.
func shimOf(t *testing.T, id string) int {
	t.Helper()
	all, err := procfs.All()
	must(t, err)
	for _, p := range all {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if !p.Dead() && strings.HasPrefix(string(command), "vk-process-shim\x00container") && strings.Contains(string(command), id) {
			return p.PID
		}
	}
	return 0
}
