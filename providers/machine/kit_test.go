//go:build integration

package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
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
	port := machinetest.FreePort(t)
	cfg := Config{
		Cluster: "kit", StateDir: t.TempDir(), Refresh: metav1.Duration{Duration: time.Second},
		Exec:      &ExecConfig{Command: []string{script, binary, dir}},
		Bootstrap: BootstrapConfig{Listen: fmt.Sprintf("0.0.0.0:%d", port), URL: fmt.Sprintf("https://10.231.0.1:%d", port)},
		// Of the pods that come at the same time one gets a machine in reserve, and the others wait.
		Warm: &WarmConfig{Count: 1, CPU: resource.NewQuantity(1, resource.DecimalSI), Memory: resource.NewQuantity(1<<30, resource.BinarySI)},
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

// A pod need not wait for the start of a virtual machine that is in reserve. How long it takes is a
// line of the log.
func TestQemuReserve(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the network of machines needs root: run this test as root")
	}
	image, err := filepath.Abs("../../bin/machine-image")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.driver, w.cfg.Bootstrap = nil, BootstrapConfig{}
	w.cfg.Qemu = &QemuConfig{Image: image, Bridge: "vkmkit1", Subnet: "10.231.5.0/24"}
	w.cfg.Refresh, w.cfg.MissingTimeout = metav1.Duration{Duration: time.Second}, metav1.Duration{}
	within := func(what string, check func() error) (took time.Duration) {
		t.Helper()
		began := time.Now()
		for err := check(); err != nil; err = check() {
			if took = time.Since(began); took > 8*time.Minute {
				t.Fatalf("%s: %v", what, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		return time.Since(began)
	}
	start := func(name string) (*corev1.Pod, time.Duration) {
		pod := w.pod(name)
		pod.Spec.Containers[0].Command = []string{"sleep", "1000"}
		return pod, within("pod "+name+" runs", func() error {
			if err := w.provider.CreatePod(t.Context(), pod); err != nil {
				return err
			}
			within("it is shown", func() error { return w.hasPhase(pod, corev1.PodRunning) })
			return nil
		})
	}
	w.start()
	cold, long := start("cold")
	w.stop()
	w.cfg.Warm = &WarmConfig{Count: 1, CPU: resource.NewQuantity(1, resource.DecimalSI), Memory: resource.NewQuantity(64<<20, resource.BinarySI)}
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	within("there is a machine in reserve", func() error {
		if len(w.reserve()) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	warm, short := start("warm")
	t.Logf("From the creation of a pod until it runs: %v in a machine that is made for it, %v in one in reserve", long.Round(time.Millisecond), short.Round(time.Millisecond))
	if text := w.events(); !strings.Contains(text, "MachineAssigned") {
		t.Errorf("the events are %s", text)
	}
	w.stop()
	w.cfg.Warm = nil
	w.start()
	for _, pod := range []*corev1.Pod{cold, warm} {
		within("it is deleted", func() error { return w.provider.DeletePod(t.Context(), pod) })
		w.cluster.RemovePod(pod)
	}
	within("all machines are ended", func() error {
		left, err := filepath.Glob(filepath.Join(w.cfg.StateDir, "qemu", "[a-z0-9]*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %v", left)
		}
		return err
	})
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
	_ = exec.Command("ip", "link", "delete", cfg.Qemu.Bridge).Run() // of a test that was killed

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
