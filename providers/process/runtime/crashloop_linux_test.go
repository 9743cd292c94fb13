package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// A runtime that is killed at any moment leaves nothing that runs unknown, and
// nothing that runs twice.
func TestKilledAtAnyMoment(t *testing.T) {
	rounds := 6
	if testing.Short() || os.Getenv("TEST_WITHOUT_ROOT") != "" {
		rounds = 3
	}
	each(t, func(t *testing.T, n *node) {
		root := filepath.Dir(n.cfg.Root)
		must(t, n.Close(ctx))
		config := crashingConfig(root)
		config.Isolation = n.cfg.Isolation
		n.cfg = config
		for range rounds {
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
		t.Errorf("the node logged: %s", &stderr)
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
			n.t.Errorf("%s is reported to run, and does not", id)
		case !running && count > 0:
			n.t.Errorf("%s is in state %v, and has %d processes", id, s.State, count)
		case strings.Count(out, "ran") > 1:
			n.t.Errorf("%s ran twice: %q", id, out)
		case s.State == runtimeapi.ContainerState_CONTAINER_EXITED && s.Reason != "ContainerStatusUnknown":
			n.t.Errorf("%s has ended: %v", id, s)
		}
	}
}

// A shim that is killed at any moment of a start leaves nothing either: neither
// when it gets as far as each of its steps, nor anywhere between them.
func TestShimIsKilledWhileItStarts(t *testing.T) {
	rounds := 6
	if testing.Short() || os.Getenv("TEST_WITHOUT_ROOT") != "" {
		rounds = 2
	}
	each(t, func(t *testing.T, n *node) {
		for step, reached := range n.stepsOfStart() {
			t.Run(step, func(t *testing.T) { n.killShim(t, reached) })
		}
		for range rounds {
			after := time.Now().Add(time.Duration(rand.IntN(60_000)) * time.Microsecond)
			n.killShim(t, func(int, string) bool { return time.Now().After(after) })
		}
	})
}

// stepsOfStart are the steps that can be seen from outside. Each function reports
// whether a container's shim got there, or further.
func (n *node) stepsOfStart() map[string]func(shimPID int, id string) bool {
	child := func(test func(pid int) bool) func(int, string) bool {
		return func(shimPID int, _ string) bool { return slices.ContainsFunc(childrenOf(n.t, shimPID), test) }
	}
	has := func(file string) func(int, string) bool {
		return func(_ int, id string) bool { return shim.HasRecord(filepath.Join(n.cfg.Root, "containers", id), file) }
	}
	return map[string]func(int, string) bool{
		"a shim":             func(int, string) bool { return true },
		"it listens":         has(shim.SocketFile),
		"it has forked":      child(func(int) bool { return true }),
		"an init":            child(func(pid int) bool { c := commandOf(pid); return c != "" && !strings.Contains(c, n.cfg.Root) }),
		"it is written down": has(shim.StartedFile),
		"the command":        child(func(pid int) bool { return strings.HasPrefix(commandOf(pid), "s") }), // sh, sleep
	}
}

// killShim starts a container, kills its shim as soon as a step is reached, and
// sees that the container ends, and nothing is left of it.
func (n *node) killShim(t *testing.T, reached func(shimPID int, id string) bool) {
	t.Helper()
	id := n.create(sh("echo ran; exec sleep 1000"))
	done := make(chan error)
	go func() { done <- n.StartContainer(ctx, id) }()
	var pid int
	eventually(t, "a shim", func() bool { pid = shimOf(t, id); return pid != 0 })
	for end := time.Now().Add(time.Minute); !reached(pid, id); {
		if time.Now().After(end) {
			t.Fatal("waited in vain for the step")
		}
	}
	must(t, unix.Kill(pid, unix.SIGKILL))
	<-done
	if s := n.ended(id); s.ExitCode != 137 || s.Reason != "ContainerStatusUnknown" {
		t.Errorf("%v", s)
	}
	n.checkProcesses(map[string]bool{shim.MarkerEnv + "=" + id: true})
}

// shimOf finds a container's shim: the child of ours with its arguments. What the
// shim forks has them too, for a moment.
func shimOf(t *testing.T, id string) int {
	t.Helper()
	for _, pid := range childrenOf(t, os.Getpid()) {
		if command := commandOf(pid); strings.HasPrefix(command, shim.Name+"\x00container") && strings.Contains(command, id) {
			return pid
		}
	}
	return 0
}

func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	all, err := procfs.All()
	must(t, err)
	var children []int
	for _, p := range all {
		if p.Parent == parent && !p.Dead() {
			children = append(children, p.PID)
		}
	}
	return children
}

// commandOf is a process's command line, with a zero after each argument.
func commandOf(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(data)
}
