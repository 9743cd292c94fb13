package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

func newRuntime(cfg runtime.Config) (*runtime.Runtime, error) { return runtime.New(ctx, cfg) }

// firstPID is the number of the container's first process, as it sees it.
func (n *node) firstPID(id string) string {
	if n.cfg.Isolation == runtime.IsolationNone {
		return strconv.Itoa(n.started(id).PID)
	}
	return "1"
}

func TestExecSync(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		out, errOut, err := n.ExecSync(ctx, id, []string{"sh", "-c", "echo out; echo err >&2"}, patience)
		if string(out) != "out\n" || string(errOut) != "err\n" || err != nil {
			t.Errorf("%q, %q, %v", out, errOut, err)
		}
		out, _, err = n.ExecSync(ctx, id, []string{"sh", "-c", "echo out; exit 9"}, 0)
		var exit utilexec.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 9 || !exit.Exited() || string(out) != "out\n" {
			t.Errorf("%q, %v", out, err)
		}
		if _, _, err = n.ExecSync(ctx, id, []string{"sh", "-c", "kill -9 $$"}, 0); !errors.As(err, &exit) || exit.ExitStatus() != 137 {
			t.Errorf("killed: %v", err)
		}
		if _, _, err = n.ExecSync(ctx, id, []string{"no-such-program"}, 0); status.Code(err) != codes.NotFound {
			t.Errorf("no such program: %v", err)
		}
		out, _, err = n.ExecSync(ctx, id, []string{"sh", "-c", "head -c 20000000 /dev/zero"}, 0)
		if len(out) != 16<<20 || err != nil {
			t.Errorf("%d bytes, %v", len(out), err)
		}
		if _, _, err := n.ExecSync(ctx, "nothing", []string{"true"}, 0); status.Code(err) != codes.NotFound {
			t.Errorf("no such container: %v", err)
		}
		must(t, n.StopContainer(ctx, id, 0))
		if _, _, err := n.ExecSync(ctx, id, []string{"true"}, 0); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a container that has ended: %v", err)
		}
	})
}

// A command that takes too long is killed with all that it has started.
func TestExecSyncTimesOut(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		began := time.Now()
		out, _, err := n.ExecSync(ctx, id, []string{"sh", "-c", "echo out; sleep 1001 & sleep 1002"}, 5*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || string(out) != "out\n" || time.Since(began) > time.Minute {
			t.Errorf("%q, %v after %s", out, err, time.Since(began))
		}
		n.checkAlone(id)
	})
}

// A hook has what is left of the grace period: the error says how long that was.
func TestExecSyncSaysHowLongItTook(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		late, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _, err := n.ExecSync(late, id, []string{"sleep", "1001"}, 0)
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "after 0s") {
			t.Errorf("the error is %v", err)
		}
	})
}

func living(all []procfs.Process) int {
	count := 0
	for _, p := range all {
		if !p.Dead() {
			count++
		}
	}
	return count
}

// One that is not even started in time is killed all the same.
func TestExecSyncTimesOutAtOnce(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		for timeout := range 10 {
			if _, _, err := n.ExecSync(ctx, id, []string{"sleep", "1001"}, time.Duration(timeout+1)*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		}
		n.checkAlone(id)
	})
}

// checkAlone sees whether nothing but the container's first process runs.
func (n *node) checkAlone(id string) {
	n.t.Helper()
	all, err := procfs.All()
	must(n.t, err)
	shimPID := n.started(id).ShimPID
	if left := procfs.Below(all, func(p procfs.Process) bool { return p.PID == shimPID }); living(left) != 1 {
		n.t.Errorf("left: %v", left)
	}
}

// A command whose child holds on to its output is not waited for long.
func TestExecSyncLeavesAChild(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		out, _, err := n.ExecSync(ctx, id, []string{"sh", "-c", "sleep 1000 & echo out"}, patience)
		if string(out) != "out\n" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// A process that a command leaves behind does not hold it up, also if it goes on to write.
func TestExecSyncLeavesAChildThatWrites(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		done := make(chan error)
		go func() {
			out, _, err := n.ExecSync(ctx, id, []string{"sh", "-c", "(while :; do echo late; sleep 0.2; done) & echo out"}, 0)
			if err == nil && !strings.Contains(string(out), "out\n") {
				err = fmt.Errorf("it wrote %q", out)
			}
			done <- err
		}()
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(patience):
			t.Error("it does not return")
			must(t, n.StopContainer(ctx, id, 0))
			<-done
		}
	})
}

// exec sees what the container sees.
func TestExecIsInTheContainer(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		config := sh("echo $$ $(hostname) $(id -u) $PWD; exec sleep 1000")
		id := n.start(config)
		var printed string
		eventually(t, "a line", func() bool { printed, _ = n.logs(id); return strings.Contains(printed, "\n") })
		out, _, err := n.ExecSync(ctx, id, []string{"sh", "-c", "echo " + n.firstPID(id) + " $(hostname) $(id -u) $PWD"}, 0)
		if string(out) != printed || err != nil {
			t.Errorf("%q and %q, %v", out, printed, err)
		}
		if n.cfg.Isolation == runtime.IsolationNamespaces {
			host, err := os.Hostname()
			must(t, err)
			if strings.Contains(printed, host) {
				t.Errorf("the host name is the machine's: %q", printed)
			}
		}
	})
}

// What does not start says why.
func TestStartErrors(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		dir := n.volume("broken", "\x7fELF nothing")
		must(t, os.Chmod(dir+"/broken", 0o755))
		must(t, n.Close(ctx))
		n.cfg.Binaries = []string{dir + "/*"}
		n.open()
		config := containerConfig(n.mounted(dir, "/programs") + "/broken")
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/programs", HostPath: dir}}
		id := n.create(config)
		err := n.StartContainer(ctx, id)
		if err == nil || !strings.Contains(err.Error(), "exec format error") {
			t.Errorf("%v", err)
		}
		if s := n.ended(id); s.ExitCode != 128 || s.Reason != "StartError" || s.StartedAt != 0 || s.Message == "" {
			t.Errorf("%v", s)
		}
	})
}

// As with other runtimes a container whose program is not there is created, and ends
// with its start, so that its pod fails if it is not to be restarted. What comes to be
// where the program was looked for is not run.
func TestAMissingProgramIsAStartError(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		dir := n.volume("text", "no program")
		inVolume := containerConfig(n.mounted(dir, "/programs") + "/late")
		inVolume.Mounts = []*runtimeapi.Mount{{ContainerPath: "/programs", HostPath: dir}}
		for says, config := range map[string]*runtimeapi.ContainerConfig{
			`"vk-no-such-program" in the PATH`: containerConfig("vk-no-such-program"),
			"no program /vk-no-such-program":   containerConfig("/vk-no-such-program"),
			"no program /bin":                  containerConfig("/bin"),
			"no program " + dir + "/late":      inVolume,
		} {
			id := n.create(config)
			must(t, os.WriteFile(dir+"/late", []byte("#!/bin/sh\necho ran\n"), 0o755))
			if err := n.StartContainer(ctx, id); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
			must(t, os.Remove(dir+"/late"))
			s := n.ended(id)
			if s.ExitCode != 128 || s.Reason != "StartError" || s.StartedAt != 0 || s.FinishedAt == 0 || !strings.Contains(s.Message, says) {
				t.Errorf("%s: %v", says, s)
			}
			if out, errOut := n.logs(id); out+errOut != "" {
				t.Errorf("%s: it printed %q", says, out+errOut)
			}
			n.reopen()
			if s := n.status(id); s.ExitCode != 128 || s.Reason != "StartError" {
				t.Errorf("%s after a restart: %v", says, s)
			}
		}
	})
}
