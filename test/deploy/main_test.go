//go:build containers

// Package deploy installs Virtual Kubelet in a cluster with the manifests of the
// folder deploy, by the commands of its README, and uses it. Control plane, containerd and the
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
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

const (
	bin       = "../../bin"    // where the Makefile puts what it builds
	manifests = "../../deploy" // what is tested
	host      = "host"         // the node that runs Virtual Kubelet's pods
)

// patience is how long a test waits for what should take a moment.
const patience = 120 * time.Second

// world is a cluster with one machine.
type world struct {
	*controlplane.ControlPlane
	containerd *containerd.Containerd
	client     kubernetes.Interface
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
	plane, err := controlplane.Start(ctx, controlplane.Options{
		Binary: filepath.Join(bin, "controlplane"), Address: c.Gateway(), ServiceCIDR: services,
	})
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })
	w := &world{ControlPlane: plane, containerd: c}
	w.client, err = kubernetes.NewForConfig(plane.Config())
	must(t, err)
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
	config, err := json.Marshal(map[string]any{"endpoint": w.containerd.Endpoint(), "root": root, "cgroupParent": cgroup})
	must(t, err)
	file := filepath.Join(t.TempDir(), "provider.json")
	must(t, os.WriteFile(file, config, 0o600))
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "host.log"))
	must(t, err)
	node := exec.Command(filepath.Join(bin, "virtual-kubelet"), "--kubeconfig", w.Kubeconfig(), "--nodename", host, "--disable-taint",
		"--listen-address", w.containerd.Gateway(), "--port", "0", "--provider", "cri", "--provider-config", file, "--log-level", "debug")
	node.Stdout, node.Stderr = log, log
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, node.Start())
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait() // says that it was killed
		_ = log.Close()
	})
	w.await(t, host, corev1.ConditionTrue)
}

// keepLogs keeps those of Virtual Kubelet's pods.
func (w *world) keepLogs(t *testing.T) {
	pods, err := w.client.CoreV1().Pods(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{LabelSelector: "app=virtual-kubelet"})
	must(t, err)
	for _, pod := range pods.Items {
		out, _ := w.Kubectl(context.Background(), "-n", pod.Namespace, "logs", pod.Name).CombinedOutput()
		must(t, os.WriteFile(filepath.Join(t.ArtifactDir(), pod.Namespace+"-"+pod.Name+"-"+pod.Status.PodIP+".log"), out, 0o600))
	}
}

// kubectl runs kubectl to its end, and returns what it prints; it has to succeed.
func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return w.apply(t, "", args...)
}

// apply is kubectl with an input.
func (w *world) apply(t *testing.T, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.Kubectl(ctx, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// await waits until a node has the condition Ready with this status.
func (w *world) await(t *testing.T, name string, status corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	var found *corev1.Node
	eventually(t, fmt.Sprintf("node %s is Ready: %s", name, status), func() (bool, string) {
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		found = node
		return err == nil && ready(node) == status, fmt.Sprint(err, node.Status.Conditions)
	})
	return found
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
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
