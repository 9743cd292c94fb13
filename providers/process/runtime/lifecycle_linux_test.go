package runtime_test

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

func TestExitCodes(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for _, test := range []struct {
			script string
			code   int32
			reason string
			out    string
		}{
			{"echo hello", 0, "Completed", "hello\n"},
			{"exit 3", 3, "Error", ""},
			{"exit 255", 255, "Error", ""},
			{"sh -c 'kill -9 $$'; exit $?", 137, "Error", ""},
			{"echo to-err >&2; exit 1", 1, "Error", ""},
			{"printf 'no end'", 0, "Completed", "no end"},
		} {
			id := n.start(sh(test.script))
			s := n.ended(id)
			if s.ExitCode != test.code || s.Reason != test.reason {
				t.Errorf("%q: code %d, reason %s", test.script, s.ExitCode, s.Reason)
			}
			if s.StartedAt < s.CreatedAt || s.FinishedAt < s.StartedAt {
				t.Errorf("%q: created %d, started %d, finished %d", test.script, s.CreatedAt, s.StartedAt, s.FinishedAt)
			}
			if out, _ := n.logs(id); out != test.out {
				t.Errorf("%q: wrote %q", test.script, out)
			}
		}
	})
}

func TestStates(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.create(sh("exec sleep 1000"))
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_CREATED || s.ImageId != "example.com/app:v1" {
			t.Errorf("created: %v", s)
		}
		must(t, n.StartContainer(ctx, id))
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING || s.StartedAt == 0 || s.FinishedAt != 0 {
			t.Errorf("started: %v", s)
		}
		if err := n.StartContainer(ctx, id); err == nil {
			t.Error("it was started twice")
		}
		must(t, n.StopContainer(ctx, id, 0))
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 || s.FinishedAt == 0 {
			t.Errorf("stopped: %v", s)
		}
		must(t, n.StopContainer(ctx, id, 0))
		if err := n.StartContainer(ctx, id); err == nil {
			t.Error("it was started again")
		}
		must(t, n.RemoveContainer(ctx, id))
		must(t, n.RemoveContainer(ctx, id))
		must(t, n.StopContainer(ctx, id, 0))
	})
}

// A container that removes the permissions of its own directory is removed all the same.
func TestRemoveDirectoriesWithoutRights(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		config := sh("mkdir -p a/b && touch a/b/c && chmod 0 a/b && chmod 0 a; mkdir -p /tmp/x/y && chmod 0 /tmp/x")
		if n.cfg.Isolation == runtime.IsolationNone {
			config.Command[2], _, _ = strings.Cut(config.Command[2], ";")
		} else {
			config.WorkingDir = "/tmp"
		}
		id := n.start(config)
		if s := n.ended(id); s.ExitCode != 0 {
			t.Errorf("%v", s)
		}
		must(t, n.RemoveContainer(ctx, id))
	})
}

// What the program ignores, containers do not.
func TestSignalsAreDefault(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	n := newNode(t)
	if got := n.outputOf(sh(`while read name value; do case $name in SigIgn:|SigBlk:) echo $name $value;; esac; done < /proc/self/status`)); got != "SigBlk: 0000000000000000\nSigIgn: 0000000000000000\n" {
		t.Errorf("%q", got)
	}
}

// Nodes of one machine may have the same parent control group: one that ends and has
// nothing in it leaves the limits of the others' containers possible.
func TestANodeThatEndsLeavesOthersTheirControlGroupsAsRoot(t *testing.T) {
	asRoot(t)
	strict := func(c *runtime.Config) { c.AllowUnenforcedLimits = false }
	first := newNode(t, strict)
	second := newNode(t, strict, func(c *runtime.Config) { c.CgroupParent = first.cfg.CgroupParent })
	must(t, first.Close(ctx))
	config := sh("exec sleep 1000")
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}}
	id := second.start(config)
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", second.started(id).PID))
	if err != nil || !strings.Contains(string(groups), first.cfg.CgroupParent+"/"+id) {
		t.Errorf("the container is in %s, %v", groups, err)
	}
}
