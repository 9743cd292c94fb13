//go:build integration

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The script of testdata makes machines that are network namespaces of this one, each with the
// binary as its agent, which runs the pod as processes. They pass what the engine passes.
func TestNetworkNamespaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("network namespaces need root: run this test as root")
	}
	script, err := filepath.Abs("testdata/netns-machines")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := filepath.Abs("../../bin/virtual-kubelet")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "machines-") // through which all users can pass
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(script, binary, dir, "clean").CombinedOutput(); err != nil {
			t.Errorf("cannot clean up: %v: %s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	port := freePort(t)
	cfg := Config{
		Cluster: "kit", StateDir: t.TempDir(), Refresh: metav1.Duration{Duration: time.Second},
		Exec:      &ExecConfig{Command: []string{script, binary, dir}},
		Bootstrap: BootstrapConfig{Listen: fmt.Sprintf("0.0.0.0:%d", port), URL: fmt.Sprintf("https://10.231.0.1:%d", port)},
	}
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return New(init, cfg, nil)
		},
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward, providertest.Stats,
			providertest.Volumes, providertest.Tokens, providertest.InitContainers, providertest.Sidecars, providertest.Restarts,
			providertest.Probes, providertest.Hooks, providertest.Deadlines, providertest.SurvivesRestart,
		},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-machine",
		Skip:         map[string]string{"liveness-probe": "the engine's events, of which it wants one, go to the log of the agent"},
		Shell:        []string{"sh", "-c", `sleep 0.3; exec sh -c "$0" "$@"`}, // it begins a moment after its container
	}.Run(t)
}

// The image, which make machine-image makes, runs in emulated machines where KVM is missing: a
// start takes them many seconds of a processor's time, so that this is one check of each
// capability.
func TestQemu(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the network of machines needs root: run this test as root")
	}
	image, err := filepath.Abs("../../bin/machine-image")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Cluster: "kit", StateDir: t.TempDir(), Refresh: metav1.Duration{Duration: time.Second},
		Qemu: &QemuConfig{Image: image, Bridge: "vkmkit0", Subnet: "10.231.4.0/24"},
	}
	skip := map[string]string{}
	for _, check := range strings.Fields(`node-lease pod-listed pod-label delete-force delete-pending env-missing-secret env-missing-configmap env-optional twenty-pods
		exit-zero arguments downward-env working-directory stop-signal logs-unknown-container logs-follow
		logs-since restart-finished late-deletion
		exec-output exec-input exec-terminal exec-unknown-container exec-environment`) {
		skip[check] = "it is made on network namespaces, which start faster"
	}
	t.Cleanup(func() { // after the end of the node
		left, err := filepath.Glob(filepath.Join(cfg.StateDir, "qemu", "[a-z0-9]*"))
		if err != nil || len(left) > 0 {
			t.Errorf("machines are left: %v: %v", left, err)
		}
		if _, err := os.Stat("/sys/class/net/vkmkit0"); err == nil {
			t.Error("the bridge is left")
		}
	})
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return New(init, cfg, nil)
		},
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.PortForward, providertest.SurvivesRestart,
		},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-qemu",
		Skip:         skip,
		Timeout:      8 * time.Minute,
	}.Run(t)
}
