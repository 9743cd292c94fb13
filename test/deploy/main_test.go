//go:build containers

// Package deploy installs Virtual Kubelet in a cluster with the manifests of the
// directory deploy, by the commands of its README, and uses it. Control plane, containerd and the
// image are the real ones; the cluster's one machine is a node of the CRI provider.
//
// "make containers" builds what is needed and runs it, as root.
package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

const (
	bin       = "../../bin"    // where the Makefile puts what it builds
	manifests = "../../deploy" // what is tested
	host      = "host"         // the node that runs Virtual Kubelet's pods
)

// patience is how long a test waits for what should take a moment.
const patience = 5 * time.Minute

// world is a cluster with one machine.
type world struct {
	cluster
	home       cluster // of the virtual nodes; most of the time it is the same
	containerd *containerd.Containerd
	manifests  string // those that are installed
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := containerd.Start(ctx, containerd.Options{
		Binary:       filepath.Join(bin, "containerd-up"),
		SandboxImage: "localhost/pause:latest",
		Images:       []string{filepath.Join(bin, "conformance", "images.tar"), filepath.Join(bin, "image.tar")},
		LogFile:      filepath.Join(t.ArtifactDir(), "containerd.log"),
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })

	// A range of its own for each, since it is used on this machine.
	services := strings.Replace(c.Subnet(), "10.93.", "10.94.", 1)
	w := &world{
		cluster:    startCluster(t, controlplane.Options{Address: c.Gateway(), ServiceCIDR: services}),
		containerd: c, manifests: patientManifests(t),
	}
	w.home = w.cluster
	w.serveClusterIP(t)
	w.startHost(t)
	t.Cleanup(func() {
		if t.Failed() {
			w.keepLogs(t)
		}
	})
	return w
}

// startHost starts the node of this machine.
func (w *world) startHost(t *testing.T) {
	t.Helper()
	root, cgroup := filepath.Join(w.containerd.Dir(), "node"), fmt.Sprintf("/deploy-%d", os.Getpid())
	must(t, os.Mkdir(root, 0o711))
	config, err := json.Marshal(map[string]any{"endpoint": w.containerd.Endpoint(), "root": root, "cgroupParent": cgroup,
		"evictionHard": map[string]string{}, "imageGCHighThresholdPercent": 100, // regardless of the free space of the machine's disk
	})
	must(t, err)
	file := filepath.Join(t.TempDir(), "provider.json")
	must(t, os.WriteFile(file, config, 0o600))
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "host.log"))
	must(t, err)
	node, err := daemon.Launch(exec.Command(filepath.Join(bin, "virtual-kubelet"), "--kubeconfig", w.Kubeconfig(), "--nodename", host, "--disable-taint",
		"--listen-address", w.containerd.Gateway(), "--port", "0", "--provider", "cri", "--provider-config", file, "--log-level", "debug"), log)
	must(t, err)
	t.Cleanup(func() {
		_ = node.Stop(os.Kill)
		_ = log.Close()
	})
	w.awaitReady(t, host)
}

// eventually polls until a condition holds; the test fails with the last state if
// it does not.
func eventually(t *testing.T, what string, condition func() (ok bool, state string)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		ok, state := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s; last seen: %s", what, state)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
