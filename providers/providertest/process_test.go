//go:build integration

package providertest_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// Processes with namespaces, which takes root, can do all.
func TestProcess(t *testing.T) {
	testProcess(t, runtime.IsolationNamespaces, processAgent(t, runtime.IsolationNamespaces), providertest.All()...)
}

// slowShell begins a moment after its container, as all do on a busy machine.
var slowShell = []string{"sh", "-c", `sleep 0.3; exec sh -c "$0" "$@"`}

// Plain processes have volumes and termination messages, but at paths of their
// own, where the scripts of the kit do not look for them.
func TestProcessWithoutIsolation(t *testing.T) {
	testProcess(t, runtime.IsolationNone, nil,
		providertest.Commands, providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward, providertest.Stats,
		providertest.InitContainers, providertest.Sidecars, providertest.Restarts, providertest.Deadlines, providertest.Probes,
		providertest.Hooks, providertest.EphemeralContainers, providertest.SurvivesRestart)
}

func testProcess(t *testing.T, isolation string, agent func(node, kubeconfig string) *exec.Cmd, capabilities ...providertest.Capability) {
	name := "providertest-process-" + isolation
	root := openDir(t)
	providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			var config process.Config
			config.Root = root
			config.Runtime.Isolation = isolation
			config.Runtime.SharedNetwork = true
			config.CgroupParent = "/" + name + "-" + strconv.Itoa(os.Getpid())
			p, err := process.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: cfg.Node.Name, ClusterDomain: "cluster.local"}, config)
			if err != nil {
				return nil, nil, err
			}
			return nodeutil.AsProvider(p), p, nil
		},
		Capabilities: capabilities,
		ControlPlane: filepath.Join(bin, "controlplane"),
		NodeName:     name,
		NodeOptions:  []nodeutil.NodeOpt{resolvesItself},
		Shell:        slowShell,
		Directories:  []string{root},
		Agent:        agent,
	}.Run(t)
}

// processAgent runs virtual-kubelet with a directory of its own.
func processAgent(t *testing.T, isolation string) func(node, kubeconfig string) *exec.Cmd {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"root": openDir(t), "cgroupParent": "/providertest-killed-" + isolation + "-" + strconv.Itoa(os.Getpid()),
		"runtime": map[string]any{"isolation": isolation, "sharedNetwork": true},
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
// nobody, and have volumes below it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "providertest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the provider leaves something that cannot be removed: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}
