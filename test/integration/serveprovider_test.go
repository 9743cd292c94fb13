//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// The provider of a node is another process of the binary, which has no access to the cluster, on this
// machine or another one. Pods have what is in their environments and volumes, and run on while that
// process is killed.
func TestServedProvider(t *testing.T) {
	t.Parallel() // it waits most of the time
	t.Run("unix", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(t.TempDir(), "socket")
		runServedProvider(t, "address: unix://"+socket, "--listen", "unix://"+socket)
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		ports, err := daemon.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		file := func(name string) string { return filepath.Join(dir, name) }
		page, err := os.ReadFile("../../providers/remote/README.md")
		if err != nil {
			t.Fatal(err)
		}
		commands := regexp.MustCompile(`(?m)^\topenssl req .*$`).FindAllString(string(page), -1)
		if len(commands) != 2 {
			t.Fatalf("the page makes certificates with %q", commands)
		}
		runIn(t, dir, "sh", "-ec", strings.Join(commands, "\n"))
		address := fmt.Sprintf("127.0.0.1:%d", ports[0])
		runServedProvider(t, fmt.Sprintf("{address: %q, tls: {caFile: %s, certFile: %s, keyFile: %s, serverName: provider.example.com}}", address, file("provider.crt"), file("kubelet.crt"), file("kubelet.key")),
			"--listen", address, "--tls-cert-file", file("provider.crt"), "--tls-private-key-file", file("provider.key"), "--client-ca-file", file("kubelet.crt"))
	})
}

// runServedProvider runs a node with a configuration, whose provider listens as flags say.
func runServedProvider(t *testing.T, config string, flags ...string) {
	dir, err := os.MkdirTemp("", "served-") // through which the users of containers can pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	here, there := filepath.Join(dir, "remote.yaml"), filepath.Join(dir, "process.yaml")
	for file, text := range map[string]string{
		here:  config,
		there: fmt.Sprintf("{root: %s/root, evictionHard: {}, cgroupParent: /%s, runtime: {sharedNetwork: true, allowUnenforcedLimits: true}}", dir, name),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	log := &lockedbuffer.Buffer{}
	serve := func() *daemon.Process {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "virtual-kubelet"), append([]string{"serve-provider", "--provider", "process", "--provider-config", there, "--nodename", name}, flags...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		p, err := daemon.Launch(cmd, log)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	server := serve()
	t.Cleanup(func() {
		if err := server.Stop(syscall.SIGTERM); err != nil {
			t.Errorf("the server did not end well: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the server:\n%s", log)
		}
	})
	n := &virtualNode{name: name, log: &lockedbuffer.Buffer{}}
	n.user, n.kubeconfig = newAccountFor(t, dir, name, name, "--provider", "remote")
	since := time.Now()
	n.launch(t, []string{"--kubeconfig", n.kubeconfig, "--nodename", name, "--port", "0", "--provider", "remote", "--provider-config", here})
	t.Cleanup(func() {
		n.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.log)
		}
		assertNothingForbidden(t, n.user)
		if err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n.waitReady(t, since)

	ns := newNamespace(t)
	kubectl(t, "-n", ns, "create", "configmap", "settings", "--from-literal=COLOUR=blue")
	kubectl(t, "-n", ns, "create", "secret", "generic", "keys", "--from-literal=key=abc")
	spec := podSpec(n)
	c := &spec.Containers[0]
	c.Command = []string{"sh", "-c", `echo "$COLOUR $(cat /keys/key)"; trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done`}
	c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}}
	spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
	pod := createPod(t, ns, "hello", spec, nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	eventually(t, "the log has what the pod was given", func(context.Context) (bool, string) {
		out := kubectl(t, "-n", ns, "logs", "hello")
		return out == "blue abc\n", out
	})

	_ = server.Stop(syscall.SIGKILL)
	server = serve()
	eventually(t, "the pod is there, and was not started again", func(ctx context.Context) (bool, string) {
		out, err := cluster.Kubectl(ctx, "-n", ns, "exec", "hello", "--", "echo", "again").CombinedOutput()
		now, getErr := client.CoreV1().Pods(ns).Get(ctx, "hello", metav1.GetOptions{})
		if getErr == nil && (now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0) {
			t.Fatalf("the pod is %+v", now.Status)
		}
		return err == nil && string(out) == "again\n", fmt.Sprintf("%v: %s", err, out)
	})
	if out := kubectl(t, "-n", ns, "logs", "hello"); out != "blue abc\n" {
		t.Errorf("the log is %q", out)
	}
	kubectl(t, "-n", ns, "delete", "pod", "hello", "--timeout=60s")
	waitForGone(t, pod)
	eventually(t, "nothing of the pod is left", func(context.Context) (bool, string) {
		left, err := os.ReadDir(filepath.Join(dir, "root", "pods"))
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
}

// A node of the same name in another cluster has none of the pods, and would have all deleted. It is
// refused, also by a provider that was started again and that it reaches first, and says why.
func TestServedProviderOfTwoClusters(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "clusters-") // through which the users of containers can pass
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket, here, there := filepath.Join(dir, "socket"), filepath.Join(dir, "remote.yaml"), filepath.Join(dir, "process.yaml")
	for file, text := range map[string]string{
		here:  "address: unix://" + socket,
		there: fmt.Sprintf("{root: %s/root, evictionHard: {}, cgroupParent: /two-clusters, runtime: {sharedNetwork: true, allowUnenforcedLimits: true}}", dir),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	other, err := controlplane.Start(t.Context(), controlplane.Options{Binary: filepath.Join(bin, "controlplane")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	})
	const name = "two-clusters"
	serve := func() *daemon.Process {
		t.Helper()
		server, _ := launchLogged(t, "the provider", "serve-provider", "--provider", "process", "--provider-config", there, "--nodename", name, "--listen", "unix://"+socket)
		return server
	}
	nodeOf := func(cluster *controlplane.ControlPlane, what string) (*daemon.Process, *lockedbuffer.Buffer) {
		t.Helper()
		return launchLogged(t, what, "--kubeconfig", cluster.Kubeconfig(), "--nodename", name, "--port", "0", "--provider", "remote", "--provider-config", here)
	}

	// The other cluster is the first, while there is no pod; its node stands still then.
	server := serve()
	second, secondLog := nodeOf(other, "the node of the other cluster")
	waitForReady(t, other, corev1.ConditionTrue, name, "")
	signal(t, second, syscall.SIGSTOP)
	stopProcess(t, server)
	server = serve()
	first, _ := nodeOf(cluster, "the node")
	waitForReady(t, cluster, corev1.ConditionTrue, name, "")
	ns := newNamespace(t)
	spec := podSpec(&virtualNode{name: name})
	spec.Containers[0].Command = []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"}
	pod := createPod(t, ns, "stays", spec, nil)
	pod = waitForPhase(t, ns, pod.Name, corev1.PodRunning)

	signal(t, second, syscall.SIGCONT)
	const refused = "runs the pods of node \"two-clusters\" of the cluster whose kube-system has the UID "
	waitForReady(t, other, corev1.ConditionFalse, name, refused+clusterUID(t, cluster)+", not of "+clusterUID(t, other))

	// Now the other one comes first after a restart.
	signal(t, first, syscall.SIGSTOP)
	_ = server.Stop(syscall.SIGKILL)
	before := len(secondLog.String())
	logs := func(text string) {
		t.Helper()
		eventually(t, "the node of the other cluster logs "+text, func(context.Context) (bool, string) {
			return strings.Contains(secondLog.String()[before:], text), "it does not"
		})
	}
	logs("connection refused")
	before = len(secondLog.String())
	serve()
	logs("kube-system has the UID " + clusterUID(t, cluster))
	signal(t, first, syscall.SIGCONT)
	waitForReady(t, cluster, corev1.ConditionTrue, name, "")
	eventually(t, "the pod can be reached, and was not started again", func(ctx context.Context) (bool, string) {
		now, err := client.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
			t.Fatalf("the pod is %+v, %v", now.Status, err)
		}
		out, err := cluster.Kubectl(ctx, "-n", ns, "exec", pod.Name, "--", "echo", "here").CombinedOutput()
		return err == nil && string(out) == "here\n", fmt.Sprintf("%v: %s", err, out)
	})

	// A process of the other cluster that is started now says so, and ends.
	stopProcess(t, second)
	third, thirdLog := nodeOf(other, "the node of the other cluster")
	select {
	case <-third.Done():
		if text := thirdLog.String(); third.Err() == nil || !strings.Contains(text, refused) || !strings.Contains(text, "/root/cluster-uid") {
			t.Errorf("it ends with %v, and does not say why and what to do", third.Err())
		}
	case <-time.After(patience):
		t.Error("a node of another cluster goes on")
	}
	kubectl(t, "-n", ns, "delete", "pod", pod.Name, "--timeout=60s")
}

// launchLogged starts a process of the binary, which is stopped after the test, and whose log is shown
// if that fails.
func launchLogged(t *testing.T, what string, args ...string) (*daemon.Process, *lockedbuffer.Buffer) {
	t.Helper()
	log := &lockedbuffer.Buffer{}
	cmd := exec.Command(filepath.Join(bin, "virtual-kubelet"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	p, err := daemon.Launch(cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Stop(syscall.SIGTERM) // it may have ended
		if t.Failed() {
			t.Logf("log of %s:\n%s", what, log)
		}
	})
	return p, log
}

func stopProcess(t *testing.T, p *daemon.Process) {
	t.Helper()
	if err := p.Stop(syscall.SIGTERM); err != nil {
		t.Errorf("a process did not end well: %v", err)
	}
}

func signal(t *testing.T, p *daemon.Process, s os.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// waitForReady waits until the node of a cluster has a condition Ready, with a text in its message.
func waitForReady(t *testing.T, in *controlplane.ControlPlane, status corev1.ConditionStatus, name, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the node is ready: %s, %s", status, text), func(ctx context.Context) (bool, string) {
		n, err := clientOf(t, in).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == status && strings.Contains(c.Message, text), fmt.Sprintf("%+v", c)
			}
		}
		return false, "no Ready condition"
	})
}

func clientOf(t *testing.T, c *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	made, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func clusterUID(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	ns, err := clientOf(t, c).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(ns.UID)
}
