package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// in runs a container in a sandbox, and returns its ID.
func (n *node) in(box string, config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	id, err := n.CreateContainer(ctx, box, config, nil)
	must(n.t, err)
	must(n.t, n.StartContainer(ctx, id))
	return id
}

// output runs a container in a sandbox to its end, and returns what it has written.
func (n *node) output(box string, config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	id := n.in(box, config)
	n.ended(id)
	out, errOut := n.logs(id)
	return out + errOut
}

// The containers of a pod share its IPC namespace and /dev/shm, also with those that
// have ended, across restarts of the runtime; other pods have others, and all of it
// goes with the sandbox.
func TestPodsShareIPCAsRoot(t *testing.T) {
	asRoot(t)
	// Not in /tmp, which containers do not have.
	state := stateDir(t)
	n := newNode(t, func(c *runtime.Config) {
		c.Root, c.Isolation = filepath.Join(state, "runtime"), runtime.IsolationNamespaces
	})
	const show = "readlink /proc/self/ns/ipc; cat /dev/shm/letter"
	box, _ := n.sandbox()
	first := n.output(box, sh("readlink /proc/self/ns/ipc; echo hello > /dev/shm/letter; cat /dev/shm/letter"))
	if !strings.Contains(first, "ipc:") || !strings.HasSuffix(first, "hello\n") {
		t.Fatalf("the first container: %q", first)
	}
	if got := n.output(box, sh(show)); got != first {
		t.Errorf("the second container has %q, and the first had %q", got, first)
	}
	key := strconv.Itoa(0x766b0000 + os.Getpid()%0xffff)
	if got := n.output(box, n.helper("shm-make", key)); got != "made\n" {
		t.Errorf("System V shared memory: %q", got)
	}
	runs := n.in(box, sh("exec sleep 1000"))
	for range 2 {
		n.reopen()
		if got := n.output(box, sh(show)); got != first {
			t.Errorf("after a restart there is %q, and was %q", got, first)
		}
		if got := n.output(box, n.helper("shm", key)); got != "<nil>\n" {
			t.Errorf("System V shared memory after a restart: %q", got)
		}
	}
	if out, _, err := n.ExecSync(ctx, runs, []string{"sh", "-c", show}, 0); err != nil || string(out) != first {
		t.Errorf("exec: %q, %v", out, err)
	}
	other, _ := n.sandbox()
	if got := n.output(other, sh(show)); strings.Contains(got, "hello") || strings.Contains(got, strings.Fields(first)[0]) {
		t.Errorf("another pod has %q", got)
	}
	if got := n.output(other, n.helper("shm", key)); got != "no such file or directory\n" {
		t.Errorf("System V shared memory of another pod: %q", got)
	}
	// Its mounts are nobody else's.
	mounts := n.output(other, sh("cat /proc/self/mountinfo"))
	if count := strings.Count(mounts, box) + strings.Count(mounts, other); count > 1 {
		t.Errorf("a container has mounts of pods:\n%s", mounts)
	}
	must(t, n.StopPodSandbox(ctx, box))
	if data, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(data), box) {
		t.Errorf("what a stopped pod shared is there: %v\n%s", err, data)
	}
	must(t, n.StopPodSandbox(ctx, box))
}

// What a removal that was cut off has left is released by the next runtime.
func TestWhatPodsSharedIsCollectedAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Isolation = runtime.IsolationNamespaces })
	box, _ := n.sandbox()
	n.output(box, sh("true"))
	kept, _ := n.sandbox()
	n.output(kept, sh("echo hello > /dev/shm/letter"))
	must(t, n.Close(ctx))
	must(t, os.Rename(filepath.Join(n.cfg.Root, "sandboxes", box), filepath.Join(n.cfg.Root, "sandboxes", ".old-"+box)))
	n.open()
	data, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(data), box) || !strings.Contains(string(data), kept) {
		t.Errorf("want nothing of %s and all of %s:\n%s", box, kept, data)
	}
	if got := n.output(kept, sh("cat /dev/shm/letter")); got != "hello\n" {
		t.Errorf("the other pod has %q", got)
	}
	// What somebody has unmounted is made again.
	for _, name := range []string{"ipc", "shm"} {
		must(t, unix.Unmount(filepath.Join(n.cfg.Root, "shared", kept, name), 0))
	}
	if got := n.output(kept, sh("ls -A /dev/shm; readlink /proc/self/ns/ipc")); !strings.HasPrefix(got, "ipc:") {
		t.Errorf("after its mounts went: %q", got)
	}
}

// Pods that may have the machine's IPC have its shared memory too.
func TestHostIPCAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Isolation, c.AllowHostIPC = runtime.IsolationNamespaces, true })
	letter, err := os.CreateTemp("/dev/shm", "vk-test-")
	must(t, err)
	defer func() { _ = os.Remove(letter.Name()) }()
	_, err = letter.WriteString("of the machine\n")
	must(t, errors.Join(err, letter.Chmod(0o644), letter.Close()))
	config := sandboxConfig(filepath.Dir(n.cfg.Root))
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Ipc: runtimeapi.NamespaceMode_NODE},
	}}
	box, err := n.RunPodSandbox(ctx, config, "")
	must(t, err)
	own, err := os.Readlink("/proc/self/ns/ipc")
	must(t, err)
	script := fmt.Sprintf("readlink /proc/self/ns/ipc; cat %s", letter.Name())
	if got, want := n.output(box, sh(script)), own+"\nof the machine\n"; got != want {
		t.Errorf("a pod with hostIPC has %q, want %q", got, want)
	}
	if got := n.attack(sh(script)); strings.Contains(got, own) || strings.Contains(got, "of the machine\n") {
		t.Errorf("one without has %q", got)
	}
}

// What all users of the machine may write to is each container's own.
func TestWritableDirectoriesAreOwnAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Isolation = runtime.IsolationNamespaces })
	name := fmt.Sprintf("vk-letter-%d", os.Getpid())
	const dirs = "for d in /tmp /var/tmp /run/lock /var/lock /dev /dev/shm /dev/mqueue"
	write := dirs + "; do echo of a pod > $d/" + name + " 2>/dev/null && cat $d/" + name + "; done"
	if got := n.attack(sh(write)); strings.Count(got, "of a pod") < 3 {
		t.Errorf("a pod writes %q", got)
	}
	if got := n.attack(sh(dirs + "; do cat $d/" + name + " 2>/dev/null && echo seen in $d; done")); got != "" {
		t.Errorf("another pod reads %q", got)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/run/lock", "/dev", "/dev/shm"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			_ = os.Remove(filepath.Join(dir, name))
			t.Errorf("a pod has written into the machine's %s", dir)
		}
	}
	// What is there counts for the pod's disk.
	id := n.start(sh("dd if=/dev/zero of=/var/tmp/big bs=1024 count=2048 2>/dev/null; echo done; exec sleep 1000"))
	n.waitLog(id, "done")
	stats, err := n.ContainerStats(ctx, id)
	must(t, err)
	if used := stats.GetWritableLayer().GetUsedBytes().GetValue(); used < 2<<20 {
		t.Errorf("with 2 MiB in /var/tmp the container uses %d bytes", used)
	}
}
