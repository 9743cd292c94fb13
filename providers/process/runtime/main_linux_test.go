package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	logslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

var ctx = context.Background()

func TestMain(m *testing.M) {
	runtime.MaybeShim()
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		os.Exit(helper(os.Args[2:]))
	}
	if root := os.Getenv("TEST_CRASHING_ROOT"); root != "" {
		os.Exit(crashingNode(root))
	}
	goleak.VerifyTestMain(m)
}

// node is a runtime with its directory, which the test may close and open again.
type node struct {
	*runtime.Runtime
	t   *testing.T
	cfg runtime.Config
}

var nodes atomic.Int32

// each runs a test with each isolation that is possible here.
func each(t *testing.T, test func(t *testing.T, n *node), change ...func(*runtime.Config)) {
	t.Helper()
	for _, isolation := range isolations() {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			test(t, newNode(t, append([]func(*runtime.Config){func(c *runtime.Config) { c.Isolation = isolation }}, change...)...))
		})
	}
}

// isolations are those that are possible here.
func isolations() []string {
	if os.Geteuid() != 0 || os.Getenv(plainEnv) != "" {
		return []string{runtime.IsolationNone}
	}
	return []string{runtime.IsolationNone, runtime.IsolationNamespaces}
}

// newNode makes a runtime, and checks at the end that nothing is left of it.
func newNode(t *testing.T, change ...func(*runtime.Config)) *node {
	t.Helper()
	root := tempDir(t)
	n := &node{t: t, cfg: runtime.Config{
		Root:       filepath.Join(root, "runtime"),
		VolumeDirs: []string{filepath.Join(root, "volumes")},
		HostPaths:  []string{filepath.Join(root, "shared")},
		// Tests that are about these set them back.
		SharedNetwork: true, AllowUnenforcedLimits: true,
		CgroupParent: fmt.Sprintf("/vk-test-%d-%d", os.Getpid(), nodes.Add(1)),
	}}
	// What tests bring along is a program too: see helper.
	n.cfg.Binaries = []string{"/bin/*", "/sbin/*", "/usr/bin/*", "/usr/sbin/*", "/usr/local/bin/*", "/usr/local/sbin/*", n.cfg.HostPaths[0] + "/*/helper"}
	for _, f := range change {
		f(&n.cfg)
	}
	n.open()
	t.Cleanup(n.check)
	return n
}

// tempDir is a directory that all users may pass through.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vk-process-")
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) open() {
	n.t.Helper()
	r, err := runtime.New(ctx, n.cfg)
	must(n.t, err)
	n.Runtime = r
}

// reopenLogged opens it again, and returns its warnings.
func (n *node) reopenLogged() *lockedbuffer.Buffer {
	n.t.Helper()
	must(n.t, n.Close(ctx))
	logged := &lockedbuffer.Buffer{}
	logger := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r, err := runtime.New(log.WithLogger(ctx, logslog.FromSlog(logger)), n.cfg)
	must(n.t, err)
	n.Runtime = r
	return logged
}

func (n *node) reopen() {
	n.t.Helper()
	must(n.t, n.Close(ctx))
	n.open()
}

// check removes everything and sees whether anything is left.
func (n *node) check() {
	boxes, err := n.ListPodSandbox(ctx, nil)
	must(n.t, err)
	markers := map[string]bool{}
	for _, id := range n.ids() {
		markers[shim.MarkerEnv+"="+id] = true
	}
	for _, b := range boxes {
		must(n.t, n.StopPodSandbox(ctx, b.Id))
	}
	logs, _ := filepath.Glob(filepath.Join(n.cfg.Root, "containers", "*", shim.LogFile))
	for _, path := range logs {
		if data, _ := os.ReadFile(path); len(data) > 0 {
			n.t.Errorf("a shim logged:\n%s", data)
		}
	}
	for _, b := range boxes {
		must(n.t, n.RemovePodSandbox(ctx, b.Id))
	}
	must(n.t, n.Close(ctx))
	n.checkProcesses(markers)
	for _, kind := range []string{"containers", "sandboxes"} {
		if entries, _ := os.ReadDir(filepath.Join(n.cfg.Root, kind)); len(entries) > 0 {
			n.t.Errorf("left in %s: %v", kind, entries)
		}
	}
	if data, _ := os.ReadFile("/proc/self/mountinfo"); bytes.Contains(data, []byte(n.cfg.Root)) {
		n.t.Errorf("left mounts:\n%s", data)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*" + n.cfg.CgroupParent); len(left) > 0 {
		n.t.Errorf("left control groups: %v", left)
	}
}

// checkProcesses sees whether processes of containers, or shims, are left.
func (n *node) checkProcesses(markers map[string]bool) {
	n.t.Helper()
	all, err := procfs.All()
	must(n.t, err)
	for _, p := range all {
		if p.Dead() {
			continue
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if bytes.Contains(command, []byte(n.cfg.Root)) {
			n.t.Errorf("process %d is left: %q", p.PID, command)
		}
		group, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
		// One without a command line has given up its memory: it is ending.
		if len(command) > 0 && bytes.Contains(group, []byte(n.cfg.CgroupParent+"/")) {
			n.t.Errorf("process %d is left in a control group: %q", p.PID, command)
		}
		for m := range maps.Keys(markers) {
			if procfs.HasEnv(p.PID, m) {
				n.t.Errorf("process %d of %s is left: %q", p.PID, m, command)
			}
		}
	}
}

func (n *node) ids() []string {
	n.t.Helper()
	list, err := n.ListContainers(ctx, nil)
	must(n.t, err)
	var ids []string
	for _, c := range list {
		ids = append(ids, c.Id)
	}
	return ids
}

var names atomic.Int32

func sandboxConfig(dir string) *runtimeapi.PodSandboxConfig {
	name := fmt.Sprintf("pod-%d-%d", os.Getpid(), names.Add(1))
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name},
		Hostname: name, LogDirectory: filepath.Join(dir, "logs", name),
		Labels: map[string]string{"pod": name},
	}
}

// sandbox runs a sandbox.
func (n *node) sandbox() (string, *runtimeapi.PodSandboxConfig) {
	n.t.Helper()
	config := sandboxConfig(filepath.Dir(n.cfg.Root))
	id, err := n.RunPodSandbox(ctx, config, "")
	must(n.t, err)
	return id, config
}

func containerConfig(command ...string) *runtimeapi.ContainerConfig {
	name := fmt.Sprintf("c-%d", names.Add(1))
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: "example.com/app:v1"},
		Command:  command, LogPath: name + "/0.log",
		Labels: map[string]string{"container": name},
	}
}

func sh(script string) *runtimeapi.ContainerConfig { return containerConfig("sh", "-c", script) }

// create creates a container in a sandbox of its own.
func (n *node) create(config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	box, boxConfig := n.sandbox()
	id, err := n.CreateContainer(ctx, box, config, boxConfig)
	must(n.t, err)
	return id
}

func (n *node) start(config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	id := n.create(config)
	must(n.t, n.StartContainer(ctx, id))
	return id
}

func (n *node) status(id string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	response, err := n.ContainerStatus(ctx, id, true)
	must(n.t, err)
	return response.Status
}

// started returns the processes of a container.
func (n *node) started(id string) shim.Started {
	n.t.Helper()
	var s shim.Started
	must(n.t, shim.ReadRecord(filepath.Join(n.cfg.Root, "containers", id), shim.StartedFile, &s))
	return s
}

// ended waits for a container's end.
func (n *node) ended(id string) *runtimeapi.ContainerStatus {
	n.t.Helper()
	var s *runtimeapi.ContainerStatus
	eventually(n.t, "the container's end", func() bool {
		s = n.status(id)
		return s.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return s
}

// patience is how long a test waits for what should take a moment.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// logs reads what a container has written, as a kubelet does.
func (n *node) logs(id string) (stdout, stderr string) {
	n.t.Helper()
	var out, errOut bytes.Buffer
	path := n.status(id).LogPath
	if _, err := os.Stat(path); err != nil {
		return "", ""
	}
	must(n.t, logs.ReadLogs(ctx, path, id, &logs.LogOptions{}, n, &out, &errOut))
	return out.String(), errOut.String()
}

// waitLog waits until a container has written something.
func (n *node) waitLog(id, text string) string {
	n.t.Helper()
	var out string
	eventually(n.t, fmt.Sprintf("%q in the log", text), func() bool {
		out, _ = n.logs(id)
		return strings.Contains(out, text)
	})
	return out
}

// volumeOf makes a directory for volumes of a pod, as the volume manager does.
func (n *node) volumeOf(pod string) string {
	n.t.Helper()
	dir := filepath.Join(n.cfg.VolumeDirs[0], pod, "volumes", fmt.Sprintf("v-%d", names.Add(1)))
	must(n.t, os.MkdirAll(dir, 0o755))
	must(n.t, os.Chmod(dir, 0o777))
	must(n.t, os.Chmod(filepath.Join(n.cfg.VolumeDirs[0], pod), 0o750))
	return dir
}

// volume makes a directory that all pods may mount, with files and what is in them.
func (n *node) volume(files ...string) string {
	n.t.Helper()
	dir := filepath.Join(n.cfg.HostPaths[0], fmt.Sprintf("v-%d", names.Add(1)))
	must(n.t, os.MkdirAll(dir, 0o755))
	must(n.t, os.Chmod(dir, 0o777))
	for i := 0; i+1 < len(files); i += 2 {
		must(n.t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o644))
	}
	return dir
}

// asRoot is for tests whose names end so: what they see is only had as root.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: run it as root, as CI does")
	}
}

// Everything but the tests AsRoot is tested without root too, by a copy of this
// program that runs as nobody.
func TestWithoutRoot(t *testing.T) {
	asRoot(t)
	t.Parallel()
	dir := tempDir(t)
	must(t, os.Chmod(dir, 0o777))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	program := filepath.Join(dir, "test")
	must(t, os.WriteFile(program, self, 0o755))
	args := []string{"-test.skip=AsRoot$|^TestWithoutRoot$"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+(time.Until(deadline)*9/10).String())
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "TEST_WITHOUT_ROOT=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("without root: %v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("PASS")) {
		t.Fatalf("without root:\n%s", out)
	}
}
