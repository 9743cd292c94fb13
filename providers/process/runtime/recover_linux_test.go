package runtime_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// A runtime that is killed once it has written that it starts a container, and
// before it does, leaves one that has not run, and can be started.
func TestAStartThatCameToNothingIsTakenBack(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.create(sh("echo ran; exec sleep 1000"))
		must(t, n.Close(ctx))
		must(t, shim.WriteRecord(filepath.Join(n.cfg.Root, "containers", id), shim.IntentFile, shim.Intent{BootID: "any", Time: time.Now()}))
		n.open()
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			t.Fatalf("the container is %v", s)
		}
		must(t, n.StartContainer(ctx, id))
		n.reopen()
		if out := n.waitLog(id, "ran"); strings.Count(out, "ran") != 1 {
			t.Errorf("its log is %q", out)
		}
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container is %v", s)
		}
	})
}

// One whose command may have run is never started again.
func TestAStartThatMayHaveRunIsNotTakenBack(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.create(sh("exit 0"))
		must(t, n.Close(ctx))
		dir := filepath.Join(n.cfg.Root, "containers", id)
		must(t, shim.WriteRecord(dir, shim.IntentFile, shim.Intent{BootID: "any", Time: time.Now()}))
		must(t, shim.WriteRecord(dir, shim.StartedFile, shim.Started{Time: time.Now()}))
		n.open()
		if s := n.ended(id); s.Reason != "ContainerStatusUnknown" {
			t.Errorf("the container is %v", s)
		}
	})
}

// What is left of a removal and cannot be removed keeps nothing from going on.
func TestARemovalThatFailsAtTheStartAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	id := n.start(sh("exec sleep 1000"))
	must(t, n.Close(ctx))
	old := filepath.Join(n.cfg.Root, "containers", ".old-x")
	mounted, fresh := filepath.Join(old, "mounted"), filepath.Join(n.cfg.Root, "sandboxes", ".new-x")
	must(t, os.MkdirAll(mounted, 0o700))
	must(t, os.Mkdir(fresh, 0o700))
	must(t, unix.Mount("none", mounted, "tmpfs", 0, ""))
	logged := n.reopenLogged()
	eventually(t, "a warning", func() bool { return strings.Contains(logged.String(), old) })
	must(t, unix.Unmount(mounted, 0))
	if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v", s)
	}
	n.reopen()
	for _, dir := range []string{old, fresh} {
		eventually(t, dir+" to go", func() bool { _, err := os.Stat(dir); return errors.Is(err, os.ErrNotExist) })
	}
}

// A file that fails to be read ends nothing: there is no runtime until it can be read.
func TestRecordsThatFailToBeRead(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		pid, box := n.started(id).PID, n.sandboxOf(id)
		must(t, n.Close(ctx))
		rest := filepath.Join(n.cfg.Root, "sandboxes", ".old-x")
		must(t, os.Mkdir(rest, 0o700))
		for _, path := range []string{
			filepath.Join("containers", id, "container.json"), filepath.Join("containers", id, shim.SpecFile), filepath.Join("containers", id, shim.ExitFile),
			filepath.Join("sandboxes", box, "sandbox.json"), "images.json", "users.json",
		} {
			path = filepath.Join(n.cfg.Root, path)
			_ = os.Rename(path, path+".away")
			must(t, os.Mkdir(path, 0o700))
			if r, err := runtime.New(ctx, n.cfg); err == nil {
				t.Errorf("there is a runtime without %s", path)
				must(t, r.Close(ctx))
			}
			_ = os.Remove(path)
			_ = os.Rename(path+".away", path)
		}
		if _, err := os.Stat(rest); err != nil {
			t.Errorf("%v: there is nothing to wait for while there is no runtime", err)
		}
		n.open()
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING || !alive(pid) {
			t.Errorf("the container is %v", s)
		}
	})
}

// Nor does it while there is a runtime: that takes the container's end as soon as it can be read.
func TestEndsThatFailToBeRead(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		logged := n.reopenLogged()
		id := n.start(sh("exec sleep 1000"))
		dir, started := filepath.Join(n.cfg.Root, "containers", id), n.started(id)
		exit := filepath.Join(dir, shim.ExitFile)
		must(t, os.Mkdir(exit, 0o700))
		must(t, procfs.Kill(started.ShimPID, started.ShimStart, unix.SIGKILL))
		eventually(t, "a warning", func() bool { return strings.Contains(logged.String(), exit) })
		_ = procfs.Kill(started.PID, started.Start, unix.SIGKILL)
		must(t, shim.WriteRecord(dir, "true", shim.Exit{Code: 7, Time: time.Now()}))
		must(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "true"), unix.AT_FDCWD, exit, unix.RENAME_EXCHANGE))
		if s := n.ended(id); s.ExitCode != 7 {
			t.Errorf("the container is %v", s)
		}
	})
}

// One record that cannot be read keeps nothing else from going on. What it was of
// ends, and it is put aside; records of newer versions can be read.
func TestBadRecords(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		good, bad := n.start(sh("exec sleep 1000")), n.start(sh("sleep 1001 & exec sleep 1002"))
		lost, ended := n.start(sh("exec sleep 1003")), n.start(sh("exit 3"))
		n.ended(ended)
		pids := []int{n.started(bad).PID, n.started(lost).PID}
		box := n.sandboxOf(good)
		lostBox := n.sandboxOf(lost)
		must(t, n.Close(ctx))
		in := func(parts ...string) string { return filepath.Join(append([]string{n.cfg.Root}, parts...)...) }
		must(t, os.WriteFile(in("containers", bad, "container.json"), []byte("{"), 0o600))
		must(t, os.WriteFile(in("sandboxes", lostBox, "sandbox.json"), nil, 0o600))
		must(t, os.WriteFile(in("containers", ended, "exit.json"), []byte("{"), 0o600))
		must(t, os.WriteFile(in("images.json"), []byte("{"), 0o600))
		must(t, os.WriteFile(in("users.json"), []byte("{"), 0o600))
		must(t, os.Mkdir(in("containers", "incomplete"), 0o700))
		var record map[string]any
		must(t, shim.ReadRecord(in("containers", good), "container.json", &record))
		record["newer"] = true
		record["config"].(map[string]any)["newerField"] = map[string]any{"a": 1}
		must(t, shim.WriteRecord(in("containers", good), "container.json", record))
		n.open()
		if s := n.status(good); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the good one is %v", s)
		}
		if s := n.ended(ended); s.ExitCode != 137 || s.Reason != "ContainerStatusUnknown" {
			t.Errorf("the one whose end cannot be read: %v", s)
		}
		eventually(t, "nothing to be left of the others", func() bool {
			return !alive(pids[0]) && !alive(pids[1]) && len(n.ids()) == 2
		})
		if aside, _ := filepath.Glob(in("broken", "*")); len(aside) != 5 {
			t.Errorf("put aside are %q", aside)
		}
		if _, err := n.PodSandboxStatus(ctx, box, false); err != nil {
			t.Error(err)
		}
		n.reopen()
	})
}
