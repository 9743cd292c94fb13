//go:build integration

package providertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// Processes with namespaces, which takes root, can do all.
func TestProcess(t *testing.T) {
	t.Parallel()
	testProcess(t, runtime.IsolationNamespaces, processAgent(t, runtime.IsolationNamespaces), providertest.All()...)
}

// slowShell begins a moment after its container, as all do on a busy machine.
var slowShell = []string{"sh", "-c", `sleep 0.3; exec sh -c "$0" "$@"`}

// plainEnv is set where the tests run as root that may not mount.
const plainEnv = "TEST_WITHOUT_SYS_ADMIN"

// Plain processes of root that may not mount, as in a container that is not
// privileged, have volumes too, but nothing can be mounted in one, and /tmp is the
// machine's. Their termination messages are at paths of their own.
func TestProcessWithoutIsolation(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) == "" {
		inPlainContainer(t)
		return
	}
	can := slices.DeleteFunc(providertest.All(), func(c providertest.Capability) bool { return c == providertest.TerminationMessages })
	testProcess(t, runtime.IsolationAuto, nil, can...)
}

// inPlainContainer runs this test again without CAP_SYS_ADMIN.
func inPlainContainer(t *testing.T) {
	t.Helper()
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.parallel=" + flag.Lookup("test.parallel").Value.String()}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+(time.Until(deadline)*9/10).String())
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), plainEnv+"=1"), &out, &out
	started := make(chan error)
	go func() {
		goruntime.LockOSThread() // until its end: the thread has lost a right
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}()
	err := <-started
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()+"/checks/volume-contents") {
		t.Errorf("%v\n%s", err, withoutTurns(out.String()))
	}
}

// withoutTurns leaves out the lines that say which test begins, waits or goes on: of
// many tests at once there are so many that a log that is cut has nothing else.
func withoutTurns(out string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.HasPrefix(strings.TrimSpace(line), "=== ")
	}), "\n")
}

func testProcess(t *testing.T, isolation string, agent func(node, kubeconfig string) *exec.Cmd, capabilities ...providertest.Capability) {
	name := "providertest-process-" + isolation
	root := openDir(t)
	skip := map[string]string{}
	if isolation != runtime.IsolationNamespaces {
		skip["volume-nested"] = "nothing can be mounted in a volume without namespaces"
		skip["isolation-files"] = "/tmp is the machine's without namespaces"
	}
	providertest.Suite{
		NewProvider:  processProvider(root, runtime.Config{Isolation: isolation}),
		Capabilities: capabilities,
		ControlPlane: filepath.Join(bin, "controlplane"),
		NodeName:     name,
		NodeOptions:  []nodeutil.NodeOpt{resolvesItself},
		Shell:        slowShell,
		Directories:  []string{root},
		Agent:        agent,
		Skip:         skip,
	}.Run(t)
}

func processProvider(root string, config runtime.Config) nodeutil.NewProviderFunc {
	return func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		config := process.Config{Runtime: config}
		config.Root, config.Runtime.SharedNetwork = root, true
		config.CgroupParent = "/" + cfg.Node.Name + "-" + strconv.Itoa(os.Getpid())
		config.EvictionHard = map[string]string{} // regardless of the free space of the machine's disk
		p, err := process.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: cfg.Node.Name, ClusterDomain: "cluster.local"}, config)
		if err != nil {
			return nil, nil, err
		}
		return nodeutil.AsProvider(p), p, nil
	}
}

// Processes that all are one user's reach each other, and the kit says so.
func TestProcessesOfOneUserFail(t *testing.T) {
	t.Parallel()
	skip := map[string]string{}
	for _, check := range nodecheck.Checks() {
		if !strings.HasPrefix(check.Name, "isolation-") {
			skip[check.Name] = "this is about isolation"
		}
	}
	text := failing(t, providertest.Suite{
		NewProvider:  processProvider(openDir(t), runtime.Config{Isolation: runtime.IsolationNone, DefaultUser: "65534"}),
		Capabilities: []providertest.Capability{providertest.Isolation, providertest.Commands, providertest.Exec, providertest.Volumes},
		NodeName:     "providertest-process-user",
		NodeOptions:  []nodeutil.NodeOpt{resolvesItself},
		Shell:        slowShell,
		Skip:         skip,
	})
	assertSays(t, text,
		"--- FAIL: TestProcessesOfOneUserFail/checks/isolation-files", "it reads /",
		"--- FAIL: TestProcessesOfOneUserFail/checks/isolation-processes", "it reads the environment of another pod in /proc/")
}

// processAgent runs virtual-kubelet with a directory of its own.
func processAgent(t *testing.T, isolation string) func(node, kubeconfig string) *exec.Cmd {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"root": openDir(t), "cgroupParent": "/providertest-killed-" + isolation + "-" + strconv.Itoa(os.Getpid()),
		"runtime":      map[string]any{"isolation": isolation, "sharedNetwork": true},
		"evictionHard": map[string]string{}, // regardless of the free space of the machine's disk
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "process.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(node, kubeconfig string) *exec.Cmd {
		command := exec.Command(filepath.Join(bin, "virtual-kubelet"), "--kubeconfig", kubeconfig, "--nodename", node,
			"--port", "0", "--provider", "process", "--provider-config", file)
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return command
	}
}

// openDir is a temporary directory through which all users can pass: pods run as
// nobody, and have volumes below it. An agent may have ended before it had unmounted
// what a pod had that was gone.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "providertest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if fields := strings.Fields(line); strings.HasPrefix(fields[4], dir+"/") {
				_ = unix.Unmount(fields[4], unix.MNT_DETACH)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the provider leaves something that cannot be removed: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}
